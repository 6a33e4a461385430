"""The default selector is never much worse than uniform sampling, and far better where structure allows.

Fixed seeds; every number is an average over data sets and over draws of the points, and the error is
measured on new rows without noise.
"""

import numpy as np
import pytest

from gleangp import SparseGPClassifier, SparseGPRegressor

N_ROWS, N_ACTIVE, N_NEW = 300, 30, 2000
MOST = 1.1  # of the error with uniformly drawn points
DIMENSIONS = {"2-D": 2, "20-D": 20}
REGRESSION = [*DIMENSIONS, "clusters", "heavy tails"]
CLASSIFICATION = [*DIMENSIONS, "clusters", "flipped labels"]
SEEDS = (0, 1, 2)


def draw(case, seed):
    """Inputs and a smooth function of them, at training rows and at new rows."""
    rng = np.random.default_rng(seed)
    p = DIMENSIONS.get(case, 3)
    waves = rng.normal(size=(6, p)) / np.sqrt(p)
    phases = rng.uniform(0.0, 2.0 * np.pi, 6)
    frequency = 2.0 if p < 5 else 0.8
    n = N_ROWS + N_NEW
    X = rng.normal(size=(n, p))
    if case == "clusters":  # one of them holds most of the rows
        frequency = 1.0
        centres = 4.0 * rng.normal(size=(12, p))
        X = centres[rng.choice(12, size=n, p=[0.6, *[0.4 / 11] * 11])] + 0.3 * X
    f = np.sin(frequency * X @ waves.T + phases).sum(axis=1)
    return X[:N_ROWS], f[:N_ROWS], X[N_ROWS:], f[N_ROWS:], rng


def regression_error(case, seed, **settings):
    """Root mean squared error over the spread of the function."""
    X, f, X_new, f_new, rng = draw(case, seed)
    y = f + 0.1 * np.std(f) * rng.normal(size=N_ROWS)
    if case == "heavy tails":
        hit = rng.choice(N_ROWS, N_ROWS // 50, replace=False)
        y[hit] += np.std(f) * rng.standard_t(1.5, size=len(hit))
    model = SparseGPRegressor(n_active=N_ACTIVE, posterior="local", random_state=seed, **settings).fit(X, y)
    return np.sqrt(np.mean((model.predict(X_new) - f_new) ** 2)) / np.std(f_new)


def classification_error(case, seed, **settings):
    """Share of new rows whose class is wrong."""
    X, f, X_new, f_new, rng = draw(case, seed)
    middle = np.median(f)
    y = f > middle
    if case == "flipped labels":
        hit = rng.choice(N_ROWS, N_ROWS // 10, replace=False)
        y[hit] = ~y[hit]
    model = SparseGPClassifier(n_active=N_ACTIVE, posterior="local", random_state=seed, **settings).fit(X, y)
    return np.mean(model.predict(X_new) != (f_new > middle))


def compare(error, case, seeds=SEEDS):
    """Errors of the default and of uniform sampling over the same data, each of shape (seeds,)."""
    default = [error(case, seed) for seed in seeds]
    uniform = [error(case, seed, selector="random") for seed in seeds]
    return np.array(default), np.array(uniform)


def of_shares(default, uniform):
    """Standard error of the difference of two shares of new rows that are wrong."""
    return np.sqrt((default + uniform) / (len(SEEDS) * N_NEW))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", REGRESSION)
def test_regression(case):
    """Smooth functions in 2 and 20 dimensions, clusters, and outliers in 2 % of the targets."""
    default, uniform = compare(regression_error, case)
    excess = default - MOST * uniform
    assert excess.mean() <= 3.0 * excess.std(ddof=1) / np.sqrt(len(excess))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CLASSIFICATION)
def test_classification(case):
    """Smooth boundaries in 2 and 20 dimensions, clusters, and 10 % of the labels flipped."""
    default, uniform = (errors.mean() for errors in compare(classification_error, case))
    assert default <= MOST * uniform + 3.0 * of_shares(default, uniform)
