"""Objective and gradient of the shared latent space against the same objective by automatic differentiation.

    OPENBLAS_NUM_THREADS=1 python benchmarks/latent_vs_autodiff.py [--rows 600] [--repeats 40]

Four tasks, 20 observed components, two latent dimensions, 50 hidden units, least-squares labels. PyTorch
and JAX (compiled) take part where they are installed; all in float64. One thread each, so that processor
time, which other work on the machine does not disturb, is comparable; the least over repeats is shown, and
that values and gradients agree.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gleangp.models.defaults import LATENT_SPACE
from gleangp.models.latent.space import LatentObjective, Weighted, start_perceptron
from gleangp.models.latent.terms import GaussianTerm
from gleangp.models.parameters import Parameters

N_TASKS, N_SCORES, N_LATENT, N_HIDDEN, DECAY = 4, 20, 2, 50, 1.0


def problem(n_rows: int):
    """Made-up scores and labels, and the objective with its start."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(n_rows, N_SCORES)) * np.linspace(2.0, 0.2, N_SCORES)
    blocks = np.array_split(np.arange(n_rows), N_TASKS)
    labels = [np.sign(rng.normal(size=(len(b), 1)) + scores[b, :1]) for b in blocks]
    inputs = scores / 2.0
    start = rng.normal(size=(n_rows, N_LATENT))
    perceptron = start_perceptron(inputs, start, N_HIDDEN, rng)
    kernel = ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(0.1) + WhiteKernel(0.1)
    terms = [GaussianTerm(scores, np.arange(n_rows))]
    terms += [GaussianTerm(z, b) for z, b in zip(labels, blocks, strict=True)]
    parts = [Weighted(term, Parameters(kernel, None)) for term in terms]
    objective = LatentObjective(start, perceptron, inputs, DECAY, parts)
    return objective, objective.slots.start, inputs, terms


def written_with(np_like, solve_triangular, sigmoid, inputs, terms):
    """The objective in the operations of an array library; theta is (log amplitude, length, bias, noise)."""
    sizes = np.cumsum([N_SCORES * N_HIDDEN, N_HIDDEN, N_HIDDEN * N_LATENT, N_LATENT])

    def value(z):
        U = z[: sizes[0]].reshape(N_SCORES, N_HIDDEN)
        V = z[sizes[1] : sizes[2]].reshape(N_HIDDEN, N_LATENT)
        X = sigmoid(inputs @ U + z[sizes[0] : sizes[1]]) @ V + z[sizes[2] : sizes[3]]
        weights, theta = z[: sizes[3]], z[sizes[3] :].reshape(-1, 4)
        total = 0.5 * LATENT_SPACE.pull * (X * X).sum() + 0.5 * DECAY * (weights * weights).sum()
        for k, (targets, rows) in enumerate(terms):
            A = X[rows] / np_like.exp(theta[k, 1])
            square = (A * A).sum(1)
            distance = square[:, None] + square[None, :] - 2.0 * A @ A.T
            K = np_like.exp(theta[k, 0]) * np_like.exp(-0.5 * distance) + np_like.exp(theta[k, 2])
            K = K + np_like.exp(theta[k, 3]) * np_like.eye(len(rows), dtype=K.dtype)
            chol = np_like.linalg.cholesky(K)
            v = solve_triangular(chol, targets)
            log_det = 2.0 * np_like.log(np_like.diagonal(chol)).sum()
            constant = targets.shape[1] * len(rows) * np.log(2.0 * np.pi)
            total = total + 0.5 * (targets.shape[1] * log_det + (v * v).sum() + constant)
        return total

    return value


def with_torch(z, inputs, terms):
    """Value and gradient by PyTorch, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    tensors = [(torch.tensor(t.targets), torch.tensor(t.rows)) for t in terms]
    value = written_with(
        torch,
        lambda L, b: torch.linalg.solve_triangular(L, b, upper=False),
        torch.sigmoid,
        torch.tensor(inputs),
        tensors,
    )

    def both(z):
        leaf = torch.tensor(z, requires_grad=True)
        result = value(leaf)
        result.backward()
        return float(result.detach()), leaf.grad.numpy()

    return both


def with_jax(z, inputs, terms):
    """Value and gradient by compiled JAX, or None where it is not installed."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    from jax.scipy.linalg import solve_triangular

    arrays = [(jax.numpy.asarray(t.targets), t.rows) for t in terms]
    value = written_with(
        jax.numpy,
        lambda L, b: solve_triangular(L, b, lower=True),
        jax.nn.sigmoid,
        jax.numpy.asarray(inputs),
        arrays,
    )
    compiled = jax.jit(jax.value_and_grad(value))

    def both(z):
        result, gradient = compiled(z)
        return float(result), np.asarray(gradient)

    return both


def seconds(functions: dict, z, repeats: int) -> dict:
    """Least processor time of each function, called in turn, after one call that is not counted."""
    times: dict = {name: [] for name in functions}
    for k in range(repeats + 1):
        for name, function in functions.items():
            start = time.process_time()
            function(z)
            if k:
                times[name].append(time.process_time() - start)
    return {name: min(t) for name, t in times.items()}


def main() -> None:
    """Print one line per way of computing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args()
    objective, z, inputs, terms = problem(arguments.rows)
    expected, gradient = objective(z)
    functions = {"gleangp": objective}
    for name, make in (("PyTorch", with_torch), ("JAX", with_jax)):
        both = make(z, inputs, terms)
        if both is None:
            print(f"{name} is not installed")
            continue
        value, other = both(z)
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        np.testing.assert_allclose(other, gradient, rtol=1e-6, atol=1e-6)
        functions[name] = both
    times = seconds(functions, z, arguments.repeats)
    for name, spent in times.items():
        ratio = spent / times["gleangp"]
        print(f"N = {arguments.rows}, {name}: {1e3 * spent:.1f} ms, {ratio:.2f} times gleangp's")


if __name__ == "__main__":
    main()
