"""MAGMA's simulations: error and coverage of gleangp's default against the printed ones, paired.

    python -m benchmarks.magma [--quick] [--datasets 100] [--observed 20]

Protocol of Leroy, Latouche, Guedj & Gey (2022): learn on individuals 2 to 21, observe the first N points of
individual 1, predict its last ten. The authors' scores are printed per data set, so differences are paired.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks.common import Row, cpu_seconds, data_folder, parser_of, regression_scores, show, with_error

SETTINGS = {"common_times": "common times", "own_times": "own times"}


def predict_individual(data: pd.DataFrame, n_observed: int) -> tuple[dict[str, float], float]:
    """Scores on the last ten points of individual 1, and the CPU seconds of learning."""
    from gleangp import SparseGPRegressor

    first = data[data["individual"] == 1].sort_values("time")
    others = data[data["individual"] > 1]

    def learn():
        X, y, tasks = (others[name].to_numpy() for name in ("time", "value", "individual"))
        model = SparseGPRegressor(random_state=0).fit(X[:, None], y, tasks=tasks)
        some = first[:n_observed]
        return model.add_task(some[["time"]].to_numpy(), some["value"].to_numpy(), task=1)

    model, cpu = cpu_seconds(learn)
    last = first[-10:]
    mean, std = model.predict(
        last[["time"]].to_numpy(), tasks=np.ones(10, int), return_std=True, include_noise=True
    )
    return regression_scores(last["value"].to_numpy(), mean, std), cpu


def rows(quick: bool = False, n_datasets: int | None = None, observed: tuple = (20,)) -> Iterator[Row]:
    """One row per setting and number of observed points."""
    folder = data_folder("magma")
    n_datasets = n_datasets or (4 if quick else 100)
    for file, name in SETTINGS.items():
        table = pd.read_csv(folder / f"{file}.csv.gz")
        printed = pd.read_csv(folder / f"{file}_printed.csv").set_index(["method", "n_observed", "dataset"])
        for n in observed:
            if ("MAGMA", n) not in printed.index.droplevel(2):
                continue
            theirs = printed.loc[("MAGMA", n)].sort_index()[:n_datasets]
            found = [predict_individual(table[table["dataset"] == key], n) for key in theirs.index]
            mse = np.array([scores["rmse"] ** 2 for scores, _ in found])
            difference = mse - theirs["mse"].to_numpy()
            coverage = 100 * np.mean([scores["cov"] for scores, _ in found])
            yield Row(
                f"MAGMA, {name}, N = {n}, {len(found)} data sets: MSE less the printed one; coverage, %",
                f"{difference.mean():+.2f} ± {difference.std() / np.sqrt(len(mse)):.2f}; {coverage:.1f}",
                "< 0; 94 to 96",
                bool(difference.mean() < 0 and 94 <= coverage <= 96),
            )
            cpu = with_error([seconds for _, seconds in found])
            text = f"{mse.mean():.2f} / {theirs['mse'].mean():.2f}; {theirs['coverage'].mean():.1f}; {cpu}"
            yield Row("– MSE of gleangp / of MAGMA; coverage of MAGMA; CPU seconds of gleangp", text)


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--datasets", type=int, help="number of data sets of each setting; default 100")
    parser.add_argument("--observed", type=int, nargs="*", default=[20], help="observed points, 1, 5, 10, 20")
    given = parser.parse_args()
    show(rows(given.quick, given.datasets, tuple(given.observed)), "pandas")


if __name__ == "__main__":
    main()
