"""What the files of the informative vector machine have in common: a case, and how to run it.

A case has one input matrix, one or several outputs that share an active set, and what the authors'
toolbox computed (reference README, "Files"). `replay` runs a case: it forces the reference order and
checks at every step that the forced point is the best one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from gleangp.inference.block import Block
from gleangp.inference.posterior import PRECISION_FLOOR, Sites, TaskPosterior, posterior_from_sites
from gleangp.models.parameters import Parameters
from gleangp.models.priors import Gamma
from gleangp.noise import NoiseModel
from gleangp.numerics.optimize import minimize
from gleangp.selection.base import Run
from gleangp.selection.runs import GreedyRun, entropy_reduction
from tests.reference.kernels_from_reference import ReferenceKernel, kernel_from_reference
from tests.reference.noise_from_reference import noise_from_reference, targets_from_reference
from tests.reference.reference_data import load
from tests.unit.gp_twins import site_log_evidence

# Reference README, "Comparing a selection order": suggested tolerances.
RTOL, ATOL = 1e-8, 1e-9
GRADIENT_RTOL = 1e-7
ENTROPY_ATOL = 1e-8
FIRM_GAP = 1e-7
OBJECTIVE_SLACK = 1e-3
LOG_TWO_PI = np.log(2.0 * np.pi)


class SeveralOutputs(Run):
    """Outputs that share the active set: a point's gain is the sum over them."""

    def __init__(self, runs: list[GreedyRun]):
        super().__init__(len(runs[0]))
        self.runs = runs
        self.filters = [run.filter for run in runs]

    def worth(self) -> np.ndarray:
        return np.sum([run.worth() for run in self.runs], axis=0)

    def include(self, row: int) -> None:
        for run in self.runs:
            run.take(row)


@dataclass(frozen=True, eq=False)
class IvmCase:
    """One entry of a file, in the library's own terms."""

    kernel: ReferenceKernel
    X: np.ndarray  # (n, p)
    Y: np.ndarray  # (n, q)
    noises: list[NoiseModel]  # one per output
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    def per_output(self, values) -> np.ndarray:
        """Numbers of the file as (rows, q), whether there is one output or several."""
        return np.asarray(values, dtype=float).reshape(-1, self.Y.shape[1])

    def new_run(self) -> SeveralOutputs:
        """A selection that has not begun."""
        blocks = [Block(self.X, y, noise) for y, noise in zip(self.Y.T, self.noises, strict=True)]
        return SeveralOutputs([GreedyRun(self.kernel.kernel, b, entropy_reduction) for b in blocks])

    def sites(self) -> list[Sites]:
        """The reference's sites, per output."""
        means = self.per_output(self.outputs["site_mean"]).T
        precisions = self.per_output(self.outputs["site_precision"]).T
        return [Sites(m, p) for m, p in zip(means, precisions, strict=True)]

    def posteriors(self) -> list[TaskPosterior]:
        """Posterior of each output from the reference's active points and sites."""
        active_X = self.X[self.outputs["active"]]
        return [posterior_from_sites(self.kernel.kernel, active_X, s) for s in self.sites()]

    def log_evidence(self, kernel) -> tuple[float, np.ndarray]:
        """Log density of the sites' means summed over outputs, with its gradient in theta."""
        parts = [site_log_evidence(kernel, self.X[self.outputs["active"]], s) for s in self.sites()]
        return sum(p[0] for p in parts), np.sum([p[1] for p in parts], axis=0)

    def log_posterior(self, kernel) -> tuple[float, np.ndarray]:
        """The log evidence plus the log prior of the variances, where the case has one."""
        value, gradient = self.log_evidence(kernel)
        log_prior, prior_gradient = Parameters(kernel, self.noises[0], (), self._priors()).slots.log_prior(
            kernel.theta
        )
        return value + log_prior, gradient + prior_gradient

    def _priors(self) -> dict[str, Gamma]:
        """Priors of the case by the names of the kernel's hyperparameters."""
        names = [h.name for h in self.kernel.kernel.hyperparameters if not h.fixed]
        # Rows of d theta / d natural that are not zero in a natural parameter's column.
        priors = {}
        for prior in self.inputs.get("kernel_priors", []):
            assert prior["distribution"] == "gamma"
            part = self.inputs["kernel"][prior["component"]]
            column = self.kernel.names.index(f"{part['type']}.{prior['parameter']}")
            (row,) = np.flatnonzero(self.kernel.dtheta_dnatural[:, column])
            priors[names[row]] = Gamma(prior["a"], prior["b"])
        return priors

    @property
    def two_pi(self) -> float:
        """What the toolbox leaves out of a log-likelihood."""
        return -0.5 * self.Y.size / len(self.Y) * len(self.outputs["active"]) * LOG_TWO_PI


def read_case(file: str, name: str) -> IvmCase:
    """An entry of a file."""
    entry = load(file)[name]
    inputs = entry["inputs"]
    y = inputs["y"]
    columns = list(zip(*y, strict=True)) if isinstance(y[0], list) else [y]
    Y = np.column_stack([targets_from_reference(list(column)) for column in columns])
    noise = inputs["noise"]
    biases = np.broadcast_to(noise["bias"], Y.shape[1])
    noises = [noise_from_reference({**noise, "bias": float(b)}) for b in biases]
    kernel = kernel_from_reference(inputs["kernel"])
    return IvmCase(kernel, np.array(inputs["X"]), Y, noises, inputs, entry["outputs"])


def is_firm(outputs: dict[str, Any]) -> bool:
    """Whether the order is decided: no tie after the first step, no gap at rounding level."""
    gaps = outputs["runner_up_gap_nats"][1:]
    return all(t == 1 for t in outputs["n_tied_for_max"][1:]) and all(
        gap is not None and gap > FIRM_GAP for gap in gaps
    )


def replay(case: IvmCase) -> SeveralOutputs:
    """Run the case in the reference's order; every forced point must be within rounding of the best."""
    run = case.new_run()
    for row in case.outputs["active"]:
        gains = run.scores()
        assert gains[row] >= gains.max() - ENTROPY_ATOL
        run.take(row)
    return run


def check_order(case: IvmCase) -> None:
    """Left to itself, greedy selection takes the reference's points in the reference's order.

    Where the order is not firm there is nothing to compare: `replay` checks the case.
    """
    outputs = case.outputs
    replay(case)
    if is_firm(outputs):
        run = case.new_run()
        if outputs["n_tied_for_max"][0] > 1:
            run.take(outputs["active"][0])
        run.extend(len(outputs["active"]) - len(run.picks))
        assert_array_equal(run.picks, outputs["active"])
        assert_allclose(run.gains, outputs["delta_entropy_nats"], rtol=0, atol=ENTROPY_ATOL)


def check_filter(case: IvmCase) -> None:
    """Moments before and at every inclusion, sites, and the marginals of all rows at the end."""
    prior = case.new_run()
    for k, f in enumerate(prior.filters):
        _, g, nu = f.noise.log_partition(f.y, f.mean, f.var)
        before = case.outputs["before_first_inclusion"]
        assert_allclose(g, case.per_output(before["g"])[:, k], rtol=RTOL, atol=ATOL)
        if not f.noise.log_concave:
            nu = np.maximum(nu, PRECISION_FLOOR)  # the file has nu after the toolbox's floor
        assert_allclose(nu, case.per_output(before["nu"])[:, k], rtol=RTOL, atol=ATOL)
    run = replay(case)
    assert_allclose(run.gains, case.outputs["delta_entropy_nats"], rtol=0, atol=ENTROPY_ATOL)
    for k, (f, sites) in enumerate(zip(run.filters, [f.sites() for f in run.filters], strict=True)):
        for name, theirs in case.outputs["at_inclusion"].items():
            ours = np.array(f.moments)[:, ("mean", "var", "g", "nu").index(name)]
            assert_allclose(ours, case.per_output(theirs)[:, k], rtol=RTOL, atol=ATOL, err_msg=name)
        expected = {
            "site_mean": sites.mean,
            "site_precision": sites.precision,
            "train_mean": f.mean,
            "train_var": f.var,
        }
        for name, ours in expected.items():
            theirs = case.per_output(case.outputs[name])[:, k]
            assert_allclose(ours, theirs, rtol=RTOL, atol=ATOL, err_msg=name)


def check_evidence(case: IvmCase) -> None:
    """The active points' log-likelihood and gradient, here and at other kernel parameters."""
    outputs = case.outputs
    value, dtheta = case.log_evidence(case.kernel.kernel)
    likelihood = outputs["log_likelihood_active"]
    assert_allclose(value, likelihood["with_2pi_constant"], rtol=RTOL, atol=ATOL)
    assert_allclose(value - case.two_pi, likelihood["without_2pi_constant"], rtol=RTOL, atol=ATOL)
    assert case.kernel.names == outputs["kernel_parameters"]["names"]
    gradient = outputs["grad_log_likelihood_active"]
    assert_gradient(case.kernel.natural_gradient(dtheta), gradient["natural"])
    assert_gradient(case.kernel.transformed_gradient(dtheta), gradient["transformed"])
    for elsewhere in outputs.get("kernel_objective_at", []):
        moved = case.kernel.at(elsewhere["natural"])
        value, dtheta = case.log_posterior(moved.kernel)
        ours = case.two_pi - value
        assert_allclose(ours, elsewhere["negative_log_posterior"], rtol=RTOL, atol=ATOL)
        assert_gradient(moved.transformed_gradient(-dtheta), elsewhere["grad_transformed"])


def check_noise_objective(case: IvmCase) -> None:
    """The sum of log Z over all rows at the final state, and its gradient in the noise parameters."""
    theirs = case.outputs["noise"]
    states = [(f.y, f.mean, f.var) for f in replay(case).filters]
    parts = [n.log_partition(*s)[0].sum() for n, s in zip(case.noises, states, strict=True)]
    assert_allclose(sum(parts), theirs["sum_log_Z_train"], rtol=RTOL, atol=ATOL)
    grads = [n.log_partition_grad(*s) for n, s in zip(case.noises, states, strict=True)]
    ours = []
    for name in theirs["parameter_names"]:  # "bias[1]": of output 1; "sigma2": of all outputs
        stem, _, index = name.removesuffix("]").partition("[")
        stem = "variance" if stem == "sigma2" else stem
        if stem == "gamma (shared)":
            ours.append(sum(g["gamma_minus"].sum() + g["gamma_plus"].sum() for g in grads))
        elif stem == "widths":
            ours.append(sum(g["widths"][:, int(index)].sum() for g in grads))
        else:
            chosen = grads if not index else [grads[int(index)]]
            ours.append(sum(g[stem].sum() for g in chosen))
    assert_gradient(ours, theirs["grad_sum_log_Z_natural"])


def check_removal(case: IvmCase) -> None:
    """Marginals of all rows after some active points were taken out, the other sites held."""
    from gleangp.selection.runs import ActiveState

    removal = case.outputs["after_removal"]
    active = np.array(case.outputs["active"])
    positions = removal["removed_positions_in_active"]
    left = np.delete(active, positions)
    assert_array_equal(left, removal["active"])
    for k, sites in enumerate(case.sites()):
        block = Block(case.X, case.Y[:, k], case.noises[k])
        state = ActiveState(case.kernel.kernel, block, active, sites)
        for position in sorted(positions, reverse=True):
            state = state.without(position)
        theirs = case.per_output(removal["train_mean"])[:, k]
        assert_allclose(state.mean, theirs, rtol=RTOL, atol=ATOL)
        theirs = case.per_output(removal["train_var"])[:, k]
        assert_allclose(state.var, theirs, rtol=RTOL, atol=ATOL)


def best_objective(log_evidence, kernel, enough) -> float:
    """Least negative log evidence that our optimiser finds over the kernel's parameters.

    There are six restarts where the first climb does not find `enough`.
    """
    from sklearn.base import clone

    def objective(theta):
        moved = clone(kernel)
        moved.theta = theta
        value, gradient = log_evidence(moved)
        return -value, -gradient

    bounds = np.column_stack([kernel.theta - 30.0, kernel.theta + 30.0])  # as good as none
    options = {"max_iter": 500, "tol": 1e-12, "rng": np.random.default_rng(0)}
    value = minimize(objective, kernel.theta, bounds, **options).value
    return (
        value if value <= enough else minimize(objective, kernel.theta, bounds, n_restarts=6, **options).value
    )


def assert_gradient(ours, theirs) -> None:
    """Gradients agree to the README's tolerance; the floor is relative to the largest entry."""
    theirs = np.asarray(theirs, dtype=float)
    floor = max(ATOL, 1e-9 * np.max(np.abs(theirs), initial=0.0))
    assert_allclose(ours, theirs, rtol=GRADIENT_RTOL, atol=floor)
