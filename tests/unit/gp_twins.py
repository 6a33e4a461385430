"""Slow twins, written from the definitions with dense matrices, for the tests of the core."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from gleangp.inference.block import Block
from gleangp.models.active.learn import ActiveEvidence
from gleangp.noise import Gaussian, Probit

KERNELS = {
    "rbf": ConstantKernel(1.5) * RBF(0.6),
    "ard": RBF([0.5, 1.5]) + ConstantKernel(0.3),
    "white": ConstantKernel(0.8) * RBF(0.7) + WhiteKernel(0.1),
    "line and matern": ConstantKernel(0.5) * DotProduct(0.4) + Matern(0.9, nu=1.5),
}
NOISES = {
    "gaussian": Gaussian(0.1),
    "gaussian with bias": Gaussian(0.05, bias=0.3),
    "probit": Probit(bias=0.2),
    "steep probit": Probit(bias=-0.1, slope=30.0),
}


def make_block(noise, n, seed=0, n_distinct=None) -> Block:
    """Rows in two dimensions; with `n_distinct`, many of them are repeated, targets and all."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_distinct or n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=len(X))
    if noise.precision_depends_on_mean:
        y = np.where(y > 0, 1.0, -1.0)
    chosen = np.arange(n) if n_distinct is None else rng.integers(n_distinct, size=n)
    return Block(X[chosen], y[chosen], noise)


def gaussian_log_evidence(kernel, X, y, variance):
    """log N(y | 0, K + variance), its gradient in theta and in the variance of each row, by scikit-learn."""
    K, by_theta = kernel(X, eval_gradient=True)
    C = K + np.diag(np.broadcast_to(variance, len(X)))
    weights, sign_and_log = np.linalg.solve(C, y), np.linalg.slogdet(C)
    value = -0.5 * (y @ weights + sign_and_log[1] + len(y) * np.log(2.0 * np.pi))
    d_cov = 0.5 * (np.outer(weights, weights) - np.linalg.inv(C))
    return value, np.einsum("ij,ijq->q", d_cov, by_theta), np.diagonal(d_cov)


class DensePosterior:
    """The posterior over all rows of a block after filtering some in: mean and full covariance."""

    def __init__(self, kernel, block: Block):
        self.block = block
        self.mean = np.zeros(len(block))
        self.cov = kernel(block.X)

    def moments(self):
        """log_z, g and nu of all rows."""
        return self.block.noise.log_partition(self.block.y, self.mean, np.diagonal(self.cov))

    def entropy_gains(self):
        """-1/2 log(1 - nu var) of all rows (LPJ05 eq. 19)."""
        return -0.5 * np.log(1.0 - self.moments()[2] * np.diagonal(self.cov))

    def information_gains(self):
        """Divergence of the marginal after a row from the one before it."""
        _, g, nu = self.moments()
        before = np.diagonal(self.cov)
        after = before - nu * before**2
        shift = g * before
        return 0.5 * (np.log(before / after) + (after + shift**2) / before - 1.0)

    def include(self, row: int) -> None:
        """Filter a row in (LPJ05 eqs. 5 to 8)."""
        _, g, nu = self.moments()
        s = self.cov[:, row].copy()
        self.mean += g[row] * s
        self.cov -= nu[row] * np.outer(s, s)


def greedy_twin(kernel, blocks: list[Block], n_active: int):
    """Lawrence & Platt 2004, algorithm 2: tasks, rows and gains, by a plain double loop."""
    states = [DensePosterior(kernel, b) for b in blocks]
    left = [set(range(len(b))) for b in blocks]
    picks = []
    for _ in range(n_active):
        best = (-np.inf, None, None)
        for task, state in enumerate(states):
            gains = state.entropy_gains()
            for row in sorted(left[task]):
                if gains[row] > best[0]:
                    best = (gains[row], task, row)
        gain, task, row = best
        states[task].include(row)
        left[task].discard(row)
        picks.append((task, row, gain))
    return picks


def site_log_evidence(kernel, X, sites):
    """The library's evidence of one task's active points, and its gradient in theta (LPJ05 eq. 26)."""
    value, theta_grad, _ = ActiveEvidence([Block(X, sites.mean, Gaussian())], [sites])(kernel, {})
    return value, theta_grad
