"""gleangp as a peer among others, with its defaults."""

from __future__ import annotations

import warnings

from measure import work

from gleangp import SparseGPClassifier, SparseGPRegressor

SETTINGS = {
    "regression": "SparseGPRegressor(), defaults",
    "classification": "SparseGPClassifier(), defaults",
    "tasks": "SparseGPRegressor(), defaults; new tasks by add_task",
}


def regression(arrays, quick):
    """Mean and variance of new targets."""
    model = SparseGPRegressor(random_state=0).fit(arrays["X"], arrays["y"])

    def predict(X):
        mean, std = model.predict(X, return_std=True, include_noise=True)
        return mean, std**2

    return predict


def classification(arrays, quick):
    """Probability of class 1."""
    model = SparseGPClassifier(random_state=0).fit(arrays["X"], arrays["y"])
    return lambda X: model.predict_proba(X)[:, 1]


class Tasks:
    """Tasks that share the kernel."""

    def __init__(self, arrays, quick):
        model = SparseGPRegressor(random_state=0)
        self.model = model.fit(arrays["X"], arrays["y"], tasks=arrays["t"])
        self.n_new = 0

    def predict(self, X, t):
        """Mean and variance of new targets."""
        mean, std = self.model.predict(X, tasks=t, return_std=True, include_noise=True)
        return mean, std**2

    def add_task(self, X, y):
        """A task that comes later."""
        self.n_new -= 1  # tasks so far are 0, 1, ...
        name = self.n_new
        self.model.add_task(X, y, name)
        return lambda X_test: self.predict(X_test, [name] * len(X_test))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitters = {"regression": regression, "classification": classification, "tasks": Tasks}
        work(["gleangp", "scikit-learn", "numpy", "scipy"], fitters, SETTINGS)
