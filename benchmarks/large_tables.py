"""One table at a time: accuracy, calibration and CPU seconds on UCI tables, large and small.

    python -m benchmarks.large_tables [--quick] [--only pol bike] [--methods gleangp] [--splits 3]

Large: kin40k, protein, pol, bike (90/10 splits); small: concrete, yacht, energy, boston (20 splits). Inputs
and targets are standardised on the training part; scores are in these units for the large tables and in the
units of the target for the small ones, as others print them. CPU seconds are those of learning and
prediction, on one thread.

GPyTorch and GPBoost run on the large tables, if they are installed, with one split each: a fit takes minutes.
A fit that needs more CPU seconds than `--limit` is ended.
The exact process of scikit-learn stands in their place on the small tables. All processes have Matern 3/2
kernels with a length scale for each input.
"""

from __future__ import annotations

import importlib
import multiprocessing
import resource
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from benchmarks.common import cpu_seconds, data_folder, parser_of, regression_scores, versions, with_error
from gleangp import SparseGPRegressor

LARGE = ("kin40k", "protein", "pol", "bike")
SMALL = ("concrete", "yacht", "energy", "boston")
N_INDUCING = 1000
Predictions = tuple[np.ndarray, np.ndarray]


def gleangp(n_active: int | None = None) -> Callable:
    """gleangp's default, or with that many basis points."""

    def run(X, y, X_test) -> Predictions:
        model = SparseGPRegressor(n_active=n_active, random_state=0).fit(X, y)
        return model.predict(X_test, return_std=True, include_noise=True)

    return run


def boosting(X, y, X_test) -> Predictions:
    """Boosted trees with early stopping; one deviation, from a tenth of the rows, for all predictions."""
    model = HistGradientBoostingRegressor(max_iter=1000, early_stopping=True, random_state=0)
    held = np.arange(len(X)) % 10 == 0
    spread = np.std(y[held] - model.fit(X[~held], y[~held]).predict(X[held]))
    return model.fit(X, y).predict(X_test), np.full(len(X_test), spread)


def exact(X, y, X_test) -> Predictions:
    """The exact process of scikit-learn, one start of its optimiser."""
    p = X.shape[1]
    kernel = ConstantKernel() * Matern(np.full(p, p**0.5), nu=1.5) + WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # length scales of inputs that do not matter
        model = GaussianProcessRegressor(kernel, random_state=0).fit(X, y)
    return model.predict(X_test, return_std=True)


def gpytorch_svgp(X, y, X_test) -> Predictions:
    """Stochastic variational process: 1000 inducing points, Adam at 0.01, 20 epochs of batches of 1024."""
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    A, b, A_test = (torch.as_tensor(array, dtype=torch.float32) for array in (X, y, X_test))

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, Z):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, distribution))
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch_kernel(Z.shape[1])

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
    return gpytorch_predictions(model, likelihood, A_test)


def gpytorch_sgpr(X, y, X_test) -> Predictions:
    """Bound of Titsias: 1000 inducing points, Adam at 0.1, 50 steps."""
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    A, b, A_test = (torch.as_tensor(array, dtype=torch.float32) for array in (X, y, X_test))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(A, b, likelihood)
            Z = A[torch.randperm(len(A))[:N_INDUCING]].clone()
            kernel = gpytorch_kernel(A.shape[1])
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.InducingPointKernel(kernel, Z, likelihood)

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    for _ in range(50):
        optimizer.zero_grad()
        loss = -bound(model(A), b)
        loss.backward()
        optimizer.step()
    return gpytorch_predictions(model, likelihood, A_test)


def gpytorch_kernel(p: int):
    """Matern 3/2 with a length scale for each of p inputs, which start at sqrt(p)."""
    import gpytorch

    kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=p)
    kernel.lengthscale = p**0.5
    return gpytorch.kernels.ScaleKernel(kernel)


def gpytorch_predictions(model, likelihood, A_test) -> Predictions:
    """Means and deviations of new targets."""
    import torch

    model.eval()
    likelihood.eval()
    with torch.no_grad():
        parts = [likelihood(model(rows)) for rows in torch.split(A_test, 1000)]
    mean, var = (torch.cat([getattr(p, name) for p in parts]).numpy() for name in ("mean", "variance"))
    return mean.astype(float), np.sqrt(var.astype(float))


def gpboost(approximation: str) -> Callable:
    """GPBoost with its defaults: 20 neighbours, or 30 and 200 inducing points for "full_scale_vecchia".

    Its parameters are learnt from 5000 rows: one step of its optimiser on all of kin40k takes a minute.
    """

    def run(X, y, X_test) -> Predictions:
        import gpboost

        def model(X):
            return gpboost.GPModel(
                gp_coords=X,
                cov_function="matern_ard",
                cov_fct_shape=1.5,
                gp_approx=approximation,
                num_parallel_threads=1,
                likelihood="gaussian",
            )

        parameters = model(X[:5000]).fit(y=y[:5000]).get_cov_pars(format_pandas=False)
        found = model(X).predict(
            y=y, cov_pars=parameters, gp_coords_pred=X_test, predict_var=True, predict_response=True
        )
        return np.asarray(found["mu"]), np.sqrt(np.asarray(found["var"]))

    return run


def installed(package: str) -> bool:
    """Whether it can be imported; it is then, so that the import is no part of the time of a fit."""
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def methods(large: bool) -> dict[str, tuple[Callable, int]]:
    """All that are installed, for large tables or small ones; each with the number of splits by default."""
    if not large:
        found = {"gleangp": gleangp(), "HistGradientBoosting": boosting, "scikit-learn, exact": exact}
        return {label: (method, 20) for label, method in found.items()}
    quick = {"gleangp": gleangp(), "gleangp, n_active=200": gleangp(200), "HistGradientBoosting": boosting}
    slow = {}
    if installed("gpytorch"):
        slow |= {"GPyTorch SVGP": gpytorch_svgp, "GPyTorch SGPR": gpytorch_sgpr}
    if installed("gpboost"):
        slow |= {f"GPBoost {name}": gpboost(name) for name in ("vecchia", "full_scale_vecchia")}
    return {label: (method, 3) for label, method in quick.items()} | {
        label: (method, 1) for label, method in slow.items()
    }


def within(limit: int | None, work: Callable) -> Any:
    """The result of work(); with a limit, in a process that is ended after so many CPU seconds."""
    if limit is None:
        return work()
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        try:
            sender.send((work(), None))
        except Exception as failure:
            sender.send((None, failure))

    child = fork.Process(target=run)
    child.start()
    sender.close()
    try:
        result, failure = receiver.recv()
    except EOFError:
        raise TimeoutError(f"no result within {limit} CPU s") from None
    finally:
        child.join()
    if failure is not None:
        raise failure
    return result


def one_split(
    X, y, test, method: Callable, in_units_of_target: bool, limit: int | None = None, seed: int = 0
) -> dict[str, float]:
    """RMSE, NLPD, coverage and CPU seconds of learning and prediction."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(~test))  # files may be sorted
    X_mean, X_std = X[order].mean(axis=0), X[order].std(axis=0)
    Z = (X - X_mean) / np.where(X_std > 0, X_std, 1.0)
    centre, scale = y[order].mean(), y[order].std()
    (mean, std), cpu = within(
        limit, lambda: cpu_seconds(lambda: method(Z[order], (y[order] - centre) / scale, Z[test]))
    )
    unit = scale if in_units_of_target else 1.0
    scores = regression_scores((y[test] - centre) / scale * unit, mean * unit, std * unit)
    return {**scores, "cpu": cpu}


def rows(
    tables: list[str], wanted: list[str], splits: int | None, quick: bool, limit: int | None = None
) -> Iterator[str]:
    """Lines of a table, of methods whose name has a wanted part; quick: tables cut to 2000 rows."""
    for name in tables:
        with np.load(data_folder("uci") / f"{name}.npz") as data:
            X, y, tests = data["X"].astype(float), data["y"].ravel().astype(float), data["test"].astype(bool)
        kept = np.random.default_rng(0).permutation(len(X))[: 2000 if quick else len(X)]
        X, y, tests = X[kept], y[kept], tests[:, kept]
        for label, (method, usual) in methods(name in LARGE).items():
            if not any(part in label for part in wanted):
                continue
            n_splits = splits or (1 if quick else usual)
            try:
                found = [one_split(X, y, test, method, name in SMALL, limit) for test in tests[:n_splits]]
                cells = [with_error([scores[k] for scores in found]) for k in ("rmse", "nlpd", "cov", "cpu")]
            except Exception as failure:  # of one method: the others are still measured
                cells = [f"{type(failure).__name__}: {failure}", "", "", ""]
            size = f"{np.mean(~tests[0]) * len(X):.0f} x {X.shape[1]}"
            yield f"| {name} ({size}) | {label} | {' | '.join(cells)} | {n_splits} |"


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="*", default=[*LARGE, *SMALL], choices=[*LARGE, *SMALL])
    parser.add_argument(
        "--splits", type=int, help="default three of large tables (one of slow methods), 20 of small ones"
    )
    parser.add_argument("--methods", nargs="*", default=[""], help="parts of names; default all")
    parser.add_argument("--limit", type=int, help="most CPU seconds of one fit")
    given = parser.parse_args()
    print(versions("gpytorch", "torch", "gpboost"))
    names = ("table", "method", "RMSE", "NLPD", "coverage of 95 %", "CPU s", "splits")
    print(f"\n| {' | '.join(names)} |\n" + "|---" * len(names) + "|")
    for line in rows(given.only, given.methods, given.splits, given.quick, given.limit):
        print(line, flush=True)


if __name__ == "__main__":
    main()
