"""Evidence of hierarchical tasks: values against the definitions, gradients against differences."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from scipy.sparse.csgraph import laplacian
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.graph import local_scaling_graph
from gleangp.models.hierarchical.evidence import TaskStack
from gleangp.models.hierarchical.task import OrderRows, TaskRows
from gleangp.numerics.linalg import solve_general
from tests.differences import central

LINEAR_RBF = ConstantKernel(0.5) * DotProduct(0.0, "fixed") + ConstantKernel(1.0) * RBF(1.2)
KERNELS = [LINEAR_RBF, ConstantKernel(1.5) * Matern(1.0, nu=1.5), RBF(1.1) + WhiteKernel(0.2)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)
LOG_NOISE, LOG_WIDTH = np.log([0.15]), np.log(0.2)
OWN_NOISE = np.log([0.15, 0.02, 0.6])


def make_order(n, rng, f):
    """True pairs and comparisons of differences of f, one of them with a shared row, some with margins."""
    rows = []
    for _ in range(8):
        i, j = rng.choice(n, 2, replace=False)
        rows.append({i: 1.0, j: -1.0} if f[i] > f[j] else {j: 1.0, i: -1.0})
    for _ in range(4):
        i, j, k = rng.choice(n, 3, replace=False)
        sign = 1.0 if f[i] - 2 * f[j] + f[k] > 0 else -1.0
        rows.append({i: sign, j: -2.0 * sign, k: sign})
    Q = np.zeros((len(rows), n))
    for r, entries in enumerate(rows):
        Q[r, list(entries)] = list(entries.values())
    margin = np.where(np.arange(len(rows)) % 3 == 0, 0.1, 0.0)
    return OrderRows(csr_array(Q), margin, np.linalg.norm(Q, axis=1))


def make_task(seed, k, n, graph=True, order=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = np.sin(X @ [1.0, 0.7])
    y = f[:k] + 0.3 * rng.normal(size=k)
    L = csr_array(laplacian(local_scaling_graph(X, 4), normed=True)) if graph else None
    return TaskRows(X, y, L, make_order(n, rng, f) if order else None)


def differences(evidence, theta, log_noise, log_alpha, log_width):
    """Central differences of the summed value in theta, log noise, log alpha and log width."""
    at = {"theta": theta, "log_noise": log_noise, "log_alpha": log_alpha, "log_width": log_width}

    def value(**change):
        return evidence(**(at | change)).value.sum()

    return [central(lambda point, name=name: value(**{name: point}), at[name]) for name in at]


@each_kernel
@pytest.mark.parametrize("graph", [False, True])
def test_gaussian_gradients(kernel, graph):
    """Gradients of the stacked evidence, padding included, agree with central differences."""
    sizes = [(4, 9), (6, 12), (1, 5)] if graph else [(4, 4), (6, 6), (1, 1)]
    tasks = [make_task(s, k, n, graph) for s, (k, n) in enumerate(sizes)]
    rng = np.random.default_rng(0)
    theta = kernel.theta + 0.3 * rng.normal(size=(3, kernel.n_dims))
    log_alpha = np.log([0.3, 1.5, 0.05])
    evidence = TaskStack(kernel, tasks)
    at = evidence(theta, OWN_NOISE, log_alpha, LOG_WIDTH)
    d_theta, d_noise, d_alpha, _ = differences(evidence, theta, OWN_NOISE, log_alpha, LOG_WIDTH)
    assert_allclose(at.d_theta, d_theta, rtol=1e-6, atol=1e-7)
    assert_allclose(at.d_log_noise, d_noise, rtol=1e-6)
    assert_allclose(at.d_log_alpha, d_alpha, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("graph", [False, True])
def test_stack_equals_each_task_alone(graph):
    """Stacked and padded, every task has the evidence it has alone."""
    sizes = [(4, 9), (6, 12), (1, 5)] if graph else [(4, 4), (6, 6), (1, 1)]
    tasks = [make_task(s, k, n, graph) for s, (k, n) in enumerate(sizes)]
    theta = LINEAR_RBF.theta + 0.3 * np.random.default_rng(0).normal(size=(3, 3))
    log_alpha = np.log([0.3, 1.5, 0.05])
    stacked = TaskStack(LINEAR_RBF, tasks)(theta, OWN_NOISE, log_alpha, LOG_WIDTH)
    for b, task in enumerate(tasks):
        alone = TaskStack(LINEAR_RBF, [task])(theta[[b]], OWN_NOISE[[b]], log_alpha[[b]], LOG_WIDTH)
        assert_allclose(stacked.value[b], alone.value[0], rtol=1e-10)
        assert_allclose(stacked.d_theta[b], alone.d_theta[0], rtol=1e-8, atol=1e-10)
        assert_allclose(stacked.d_log_alpha[b], alone.d_log_alpha[0], rtol=1e-8, atol=1e-12)


def test_value_is_the_density_under_the_data_dependent_kernel():
    """The evidence is log N(y | 0, [(K^-1 + alpha L)^-1]_ll + noise) (Zhang & Yeung 2009, eq. 5)."""
    task = make_task(3, 5, 14)
    alpha = 0.7
    K = LINEAR_RBF(task.X) + 1e-10 * np.eye(14)
    Ktilde = np.linalg.inv(np.linalg.inv(K) + alpha * task.laplacian.toarray())
    C = Ktilde[:5, :5] + np.exp(LOG_NOISE) * np.eye(5)
    expected = multivariate_normal(np.zeros(5), C).logpdf(task.y)
    at = TaskStack(LINEAR_RBF, [task])(LINEAR_RBF.theta[None], LOG_NOISE, np.log([alpha]), LOG_WIDTH)
    assert_allclose(at.value, expected, rtol=1e-6)


@each_kernel
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("log_width", [np.log(0.5), np.log(0.1)])
def test_order_gradients(kernel, graph, log_width):
    """Gradients of the Laplace evidence, with the mode's motion, agree with central differences."""
    task = make_task(5, 6, 16, graph, order=True)
    evidence = TaskStack(kernel, [task])
    theta, log_alpha = kernel.theta[None], np.log([0.4])
    at = evidence(theta, LOG_NOISE, log_alpha, log_width)
    d_theta, d_noise, d_alpha, d_width = differences(evidence, theta, LOG_NOISE, log_alpha, log_width)
    assert_allclose(at.d_theta, d_theta, rtol=1e-4, atol=1e-5)
    assert_allclose(at.d_log_noise, d_noise, rtol=1e-4, atol=1e-5)
    assert_allclose(at.d_log_alpha, d_alpha, rtol=1e-4, atol=1e-5)
    assert_allclose(at.d_log_width.sum(), d_width, rtol=1e-4, atol=1e-5)


def test_no_constraints_is_the_gaussian_evidence():
    """With a constraint that always holds, Laplace's evidence is that of the labels alone (up to jitter)."""
    task = make_task(5, 6, 16)
    order = OrderRows(csr_array(np.eye(1, 16, 12)), np.array([-1e3]), np.ones(1))
    args = (LINEAR_RBF.theta[None], LOG_NOISE, np.log([0.4]), LOG_WIDTH)
    stacks = TaskStack(LINEAR_RBF, [replace(task, order=order)]), TaskStack(LINEAR_RBF, [task])
    ordered, plain = (stack(*args) for stack in stacks)
    assert_allclose(ordered.value, plain.value, rtol=1e-5)
    assert_allclose(ordered.d_theta, plain.d_theta, rtol=1e-3, atol=1e-4)


def test_laplace_evidence_is_near_the_truth():
    """With one wide constraint on one unlabelled pair, ln Z is near a Monte Carlo integral."""
    rng = np.random.default_rng(0)
    X = np.array([[0.0], [0.5], [1.5]])
    order = OrderRows(csr_array([[0.0, 1.0, -1.0]]), np.array([0.2]), np.array([np.sqrt(2.0)]))
    task = TaskRows(X, np.array([0.3]), None, order)
    at = TaskStack(RBF(1.0), [task])(np.zeros((1, 1)), np.log([0.2]), np.zeros(1), 0.0)
    f = rng.multivariate_normal(np.zeros(3), RBF(1.0)(X), 400_000)
    p = norm.pdf(0.3, f[:, 0], np.sqrt(0.2)) * norm.cdf((f[:, 1] - f[:, 2] - 0.2) / np.sqrt(2.0))
    assert_allclose(at.value[0], np.log(p.mean()), atol=0.02)


@pytest.mark.parametrize("order", [False, True])
def test_parameters_far_out_are_infeasible(order):
    """Where matrices overflow, the optimiser is told so and turns back."""
    task = make_task(5, 6, 16, order=order)
    evidence = TaskStack(LINEAR_RBF, [task])
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(NotPositiveDefiniteError):
        evidence(np.full((1, 3), 800.0), LOG_NOISE, np.array([8.0]), LOG_WIDTH)


def test_singular_systems_are_infeasible():
    """A singular or overflowing system is the error that means "infeasible"."""
    for matrix in (np.ones((2, 2)), np.full((2, 2), np.inf), np.zeros((3, 2, 2))):
        with pytest.raises(NotPositiveDefiniteError, match="2 x 2 system"):
            solve_general(matrix, np.eye(2))
