"""GPy: sparse regression with analytic gradients."""

from __future__ import annotations

import GPy
import numpy as np
from measure import work

N_INDUCING = 200
N_STEPS = 100  # what GPy's own examples of sparse regression take
SETTINGS = {
    "regression": "GPy.models.SparseGPRegression, 200 inducing points started at random rows (its default) "
    "and learnt, RBF, length scales started at sqrt(p), m.optimize() (L-BFGS-B), "
    "100 iterations as in GPy's examples",
}


def regression(arrays, quick):
    """Mean and variance of new targets."""
    np.random.seed(0)  # noqa: NPY002 - GPy draws its inducing points from it
    X, y = arrays["X"], arrays["y"][:, None]
    p = X.shape[1]
    kernel = GPy.kern.RBF(p, lengthscale=np.sqrt(p), ARD=bool(arrays["ard"]))
    model = GPy.models.SparseGPRegression(X, y, kernel, num_inducing=min(N_INDUCING, len(X)))
    model.optimize(max_iters=2 if quick else N_STEPS)

    def predict(X):
        mean, var = model.predict(X)
        return mean[:, 0], var[:, 0]

    return predict


if __name__ == "__main__":
    work(["GPy", "numpy", "scipy"], {"regression": regression}, SETTINGS)
