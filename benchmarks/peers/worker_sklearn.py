"""scikit-learn: the exact regressor up to 2000 rows; a calibrated support vector machine."""

from __future__ import annotations

import warnings

import numpy as np
from measure import work
from sklearn.calibration import CalibratedClassifierCV
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.svm import SVC

MOST_ROWS = 2000
SETTINGS = {
    "regression": "GaussianProcessRegressor (exact), C * RBF + WhiteKernel, defaults; "
    "not run above 2000 rows",
    "classification": "CalibratedClassifierCV(SVC()), defaults: C=1, gamma='scale' (no length scale per "
    "feature), sigmoid, 5 folds",
    "tasks": "a GaussianProcessRegressor (exact) per task, C * RBF + WhiteKernel, defaults; "
    "new tasks likewise",
}


def exact(X, y, ard):
    """A fitted exact regressor; gives the prediction function."""
    p = X.shape[1]
    shape = RBF(np.full(p, np.sqrt(p)) if ard else np.sqrt(p))
    model = GaussianProcessRegressor(ConstantKernel() * shape + WhiteKernel(0.1)).fit(X, y)

    def predict(X_test):
        mean, std = model.predict(X_test, return_std=True)  # white noise of the kernel is in it
        return mean, std**2

    return predict


def regression(arrays, quick):
    """The exact process."""
    if len(arrays["y"]) > MOST_ROWS:
        raise SystemExit(f"exact: not run above {MOST_ROWS} rows")
    return exact(arrays["X"], arrays["y"], arrays["ard"])


def classification(arrays, quick):
    """Support vectors: no Gaussian process, but what most would try first."""
    model = CalibratedClassifierCV(SVC()).fit(arrays["X"], arrays["y"])
    return lambda X: model.predict_proba(X)[:, 1]


class Tasks:
    """Every task on its own."""

    def __init__(self, arrays, quick):
        t = arrays["t"]
        self.ard = arrays["ard"]
        self.models = {n: exact(arrays["X"][t == n], arrays["y"][t == n], self.ard) for n in np.unique(t)}

    def predict(self, X, t):
        """Mean and variance of new targets."""
        mean, var = np.empty(len(X)), np.empty(len(X))
        for name, predict in self.models.items():
            mean[t == name], var[t == name] = predict(X[t == name])
        return mean, var

    def add_task(self, X, y):
        """One more fit."""
        return exact(X, y, self.ard)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitters = {"regression": regression, "classification": classification, "tasks": Tasks}
        work(["scikit-learn", "numpy", "scipy"], fitters, SETTINGS)
