"""One table at a time: accuracy, calibration and CPU seconds on UCI tables, large and small.

    python -m benchmarks.large_tables [--quick] [--only pol bike] [--splits 3]

Large: kin40k, protein, pol, bike (90/10 splits); small: concrete, yacht, energy, boston (20 splits). Inputs
and targets are standardised on the training part; scores are in these units for the large tables and in the
units of the target for the small ones, as others print them. One thread. GPyTorch and GPBoost run if they are
installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.common import cpu_seconds, data_folder, parser_of, regression_scores, versions, with_error

LARGE = ("kin40k", "protein", "pol", "bike")
SMALL = ("concrete", "yacht", "energy", "boston")
N_INDUCING = 500
Predictions = tuple[np.ndarray, np.ndarray]


def gleangp(n_active: int | None = None) -> Callable:
    """gleangp's default, or with that many basis points."""

    def run(X, y, X_test) -> Predictions:
        from gleangp import SparseGPRegressor

        model = SparseGPRegressor(n_active=n_active, random_state=0).fit(X, y)
        return model.predict(X_test, return_std=True, include_noise=True)

    return run


def boosting(X, y, X_test) -> Predictions:
    """Boosted trees with early stopping; one deviation, from a tenth of the rows, for all predictions."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=1000, early_stopping=True, random_state=0)
    held = np.arange(len(X)) % 10 == 0
    spread = np.std(y[held] - model.fit(X[~held], y[~held]).predict(X[held]))
    return model.fit(X, y).predict(X_test), np.full(len(X_test), spread)


def gpytorch_svgp(X, y, X_test) -> Predictions:
    """Stochastic variational GP: 500 inducing points, Matern 3/2, Adam, 20 epochs of batches of 1024."""
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    A, b, A_test = (torch.as_tensor(array, dtype=torch.float32) for array in (X, y, X_test))

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, Z):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, distribution))
            self.mean = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=Z.shape[1])
            kernel.lengthscale = Z.shape[1] ** 0.5
            self.kernel = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    model = Model(A[torch.randperm(len(A))[:N_INDUCING]])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(b))
    model.train()
    for _ in range(20):
        for rows in torch.split(torch.randperm(len(b)), 1024):
            optimizer.zero_grad()
            loss = -bound(model(A[rows]), b[rows])
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        parts = [likelihood(model(rows)) for rows in torch.split(A_test, 1000)]
    mean, var = (torch.cat([getattr(p, name) for p in parts]).numpy() for name in ("mean", "variance"))
    return mean.astype(float), np.sqrt(var.astype(float))


def gpboost_vecchia(X, y, X_test) -> Predictions:
    """Vecchia approximation with 20 neighbours, Matern 3/2 with a length scale per input."""
    import gpboost

    model = gpboost.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=20,
        num_parallel_threads=1,
        likelihood="gaussian",
    )
    model.fit(y=y)
    found = model.predict(gp_coords_pred=X_test, predict_var=True, predict_response=True)
    return np.asarray(found["mu"]), np.sqrt(np.asarray(found["var"]))


def methods() -> dict[str, Callable]:
    """All that are installed."""
    found = {"gleangp": gleangp(), "gleangp, n_active=200": gleangp(200), "HistGradientBoosting": boosting}
    if importlib.util.find_spec("gpytorch"):
        found["GPyTorch SVGP"] = gpytorch_svgp
    if importlib.util.find_spec("gpboost"):
        found["GPBoost Vecchia"] = gpboost_vecchia
    return found


def one_split(X, y, test, method: Callable, in_units_of_target: bool, seed: int = 0) -> dict[str, float]:
    """RMSE, NLPD, coverage and CPU seconds of learning and prediction."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(~test))  # files may be sorted
    X_mean, X_std = X[order].mean(axis=0), X[order].std(axis=0)
    Z = (X - X_mean) / np.where(X_std > 0, X_std, 1.0)
    centre, scale = y[order].mean(), y[order].std()
    (mean, std), cpu = cpu_seconds(lambda: method(Z[order], (y[order] - centre) / scale, Z[test]))
    unit = scale if in_units_of_target else 1.0
    scores = regression_scores((y[test] - centre) / scale * unit, mean * unit, std * unit)
    return {**scores, "cpu": cpu}


def rows(tables: tuple[str, ...], splits: int | None, quick: bool) -> Iterator[str]:
    """Lines of a table; quick: every table cut to 2000 rows."""
    for name in tables:
        with np.load(data_folder("uci") / f"{name}.npz") as data:
            X, y, tests = data["X"].astype(float), data["y"].ravel().astype(float), data["test"].astype(bool)
        kept = np.random.default_rng(0).permutation(len(X))[: 2000 if quick else len(X)]
        X, y, tests = X[kept], y[kept], tests[:, kept]
        n_splits = splits or (1 if quick else 3 if name in LARGE else 20)
        for label, method in methods().items():
            found = [one_split(X, y, test, method, name in SMALL) for test in tests[:n_splits]]
            cells = [with_error([scores[key] for scores in found]) for key in ("rmse", "nlpd", "cov", "cpu")]
            size = f"{np.mean(~tests[0]) * len(X):.0f} x {X.shape[1]}"
            yield f"| {name} ({size}) | {label} | {' | '.join(cells)} | {n_splits} |"


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="*", default=[*LARGE, *SMALL], choices=[*LARGE, *SMALL])
    parser.add_argument("--splits", type=int, help="default three of large tables, 20 of small ones")
    given = parser.parse_args()
    print(versions("gpytorch", "torch", "gpboost"))
    names = ("table", "method", "RMSE", "NLPD", "coverage of 95 %", "CPU s", "splits")
    print(f"\n| {' | '.join(names)} |\n" + "|---" * len(names) + "|")
    for line in rows(tuple(given.only), given.splits, given.quick):
        print(line, flush=True)


if __name__ == "__main__":
    main()
