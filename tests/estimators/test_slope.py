"""Probit slope with `posterior="active"`: steep where labels are clean, flat where they are wrong."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from gleangp import SparseGPClassifier


def held_out_log_loss(X, y, **settings):
    """Log loss on every second row of a classifier that saw the others; and the classifier."""
    model = SparseGPClassifier(posterior="active", random_state=0, **settings).fit(X[::2], y[::2])
    return log_loss(y[1::2], model.predict_proba(X[1::2])), model


def test_clean_labels_make_it_steep():
    """With 30 of 285 points, a learnt slope halves the log loss, and learning does not spoil the kernel."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    learnt, model = held_out_log_loss(X, y, n_active=30)
    bias_alone, held = held_out_log_loss(X, y, n_active=30, learn_noise=("bias",))
    assert held.noise_.slope == 1.0
    assert model.noise_.slope > 10.0
    assert learnt < 0.5 * bias_alone
    assert model.score(X[1::2], y[1::2]) > 0.95


def test_wrong_labels_keep_it_flat():
    """With one label in seven wrong and all points active, the slope stays near one: others judge a row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.where(rng.random(400) < 0.15, X[:, 0] < 0, X[:, 0] > 0).astype(int)
    learnt, model = held_out_log_loss(X, y, n_active=200)
    bias_alone, _ = held_out_log_loss(X, y, n_active=200, learn_noise=("bias",))
    assert 0.2 < model.noise_.slope < 5.0
    assert learnt < bias_alone + 0.01


def test_a_held_kernel_leaves_the_noise_to_learn():
    """A kernel without free parameters stays; bias and slope are learnt under it."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed")
    model = SparseGPClassifier(kernel, posterior="active", n_active=50).fit(X, X[:, 0] > 0.3)
    assert model.kernel_ == kernel
    assert model.noise_.slope > 2.0
    assert model.noise_.bias != 0.0
