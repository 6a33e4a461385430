"""Rows absorbed later: as if they had been there from the start, where that can be said exactly."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp import SparseGPClassifier, SparseGPRegressor
from gleangp.inference.block import Block
from gleangp.inference.posterior import (
    Sites,
    absorb_rows,
    filter_in_order,
    posterior_from_sites,
    prior_only,
)
from gleangp.noise import Gaussian, NullCategory, Probit
from tests.unit.gp_twins import KERNELS, DensePosterior, gaussian_log_evidence, make_block
from tests.unit.sequential_ep import propagate

X_NEW = np.random.default_rng(9).normal(size=(12, 2))


def assert_same(kernel, one, two, **tolerance):
    for ours, theirs in zip(one.predict(kernel, X_NEW), two.predict(kernel, X_NEW), strict=True):
        assert_allclose(ours, theirs, **tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_old", [0, 1, 15])
def test_active_gaussian_is_the_exact_process(kernel, n_old):
    """Gaussian noise, all rows active: the process and evidence of old and new rows together."""
    kernel, block = KERNELS[kernel], make_block(Gaussian(0.1), 25)
    old, new = block.at(np.arange(n_old)), block.at(np.arange(n_old, 25))
    sites = Sites(old.y, np.full(n_old, 10.0))
    start = posterior_from_sites(kernel, old.X, sites) if n_old else prior_only(2)
    posterior, _, absorbed = absorb_rows(kernel, start, sites, new)
    whole = posterior_from_sites(kernel, block.X, Sites(block.y, np.full(25, 10.0)))
    assert_same(kernel, posterior, whole, rtol=1e-8, atol=1e-10)
    before = gaussian_log_evidence(kernel, old.X, old.y, 0.1)[0] if n_old else 0.0
    exact = gaussian_log_evidence(kernel, block.X, block.y, 0.1)[0]
    assert_allclose(before + absorbed.log_evidence, exact, rtol=1e-8)


@pytest.mark.parametrize("noise", [Gaussian(0.1), Probit(bias=0.3)], ids=repr)
def test_active_gains_and_sites_are_those_of_filtering(noise):
    """Each new row is filtered in: its gain is the entropy it removes, its site that of the filter."""
    kernel, block = KERNELS["white"], make_block(noise, 20)
    old, new = block.at(np.arange(12)), block.at(np.arange(12, 20))
    sites = filter_in_order(kernel, old)
    _, found, absorbed = absorb_rows(kernel, posterior_from_sites(kernel, old.X, sites), sites, new)
    twin = DensePosterior(kernel, block)
    gains = []
    for row in range(20):
        gains.append(twin.entropy_gains()[row])
        twin.include(row)
    assert_allclose(absorbed.gains, gains[12:], rtol=1e-7)
    whole = filter_in_order(kernel, block)
    assert_allclose(found.mean[12:], whole.mean[12:], rtol=1e-7)
    assert_allclose(found.precision[12:], whole.precision[12:], rtol=1e-7)


def test_silent_rows_are_counted():
    """A row whose noise has no Gaussian stand-in says nothing and is counted."""
    noise = NullCategory(bias=0.0, gamma_minus=0.5, gamma_plus=0.5, width=1.0, variance=1e-3)
    kernel = KERNELS["rbf"]
    unlabeled = Block(np.zeros((1, 2)), np.zeros(1), noise)
    empty = Sites(np.zeros(0), np.zeros(0))
    posterior, sites, _ = absorb_rows(kernel, prior_only(2), empty, unlabeled)
    assert sites.n_silent == 1
    assert_allclose(posterior.predict(kernel, X_NEW)[0], 0.0, atol=1e-6)


@pytest.mark.parametrize("Model", [SparseGPRegressor, SparseGPClassifier])
def test_partial_fit_of_an_estimator(Model):
    """Numbering, gains, sites and predictions after partial_fit; no NaN anywhere."""
    block = make_block(Gaussian(0.01), 90)
    y = block.y if Model is SparseGPRegressor else block.y > 0
    tasks = np.arange(90) % 2
    settings = {"n_active": 40, "posterior": "active", "optimizer": None, "random_state": 0}
    model = Model(KERNELS["rbf"], **settings).fit(block.X[:60], y[:60], tasks[:60])
    before, n_before = model.score(block.X[60:], y[60:], tasks[60:]), len(model.active_)
    evidence = model.log_evidence_
    assert model.partial_fit(block.X[60:], y[60:], tasks[60:]) is model
    assert model.score(block.X[60:], y[60:], tasks[60:]) >= before
    assert np.all(model.active_[n_before:] >= 60)
    assert len(np.unique(model.active_)) == len(model.active_)
    for values in (model.active_gain_, model.site_mean_, model.site_precision_):
        assert len(values) == len(model.active_)
        assert np.isfinite(values).all()
    assert np.all(model.active_gain_ > 0)
    assert model.log_evidence_ < evidence
    assert_allclose(model.active_[n_before:], [*range(60, 90, 2), *range(61, 90, 2)])


def test_partial_fit_starts_with_fit():
    """On a new estimator partial_fit is fit; in parts or at once is the same exact process."""
    block = make_block(Gaussian(0.01), 40)
    settings = {"optimizer": None, "noise_variance": 0.1, "normalize_y": False}
    whole = SparseGPRegressor(KERNELS["ard"], **settings).fit(block.X, block.y)
    parts = SparseGPRegressor(KERNELS["ard"], **settings)
    for start in range(0, 40, 8):
        parts.partial_fit(block.X[start : start + 8], block.y[start : start + 8])
    assert_allclose(parts.predict(X_NEW), whole.predict(X_NEW), rtol=1e-8)
    assert_allclose(parts.log_evidence_, whole.log_evidence_, rtol=1e-9)
    classes = SparseGPClassifier(KERNELS["ard"]).partial_fit(block.X, block.y > 0, classes=[False, True])
    assert classes.score(block.X, block.y > 0) > 0.9


def test_full_propagation_agrees_with_absorbing_everything():
    """Filtering row after row is close to EP, which revisits every site."""
    kernel, block = KERNELS["ard"], make_block(Probit(), 30)
    empty = Sites(np.zeros(0), np.zeros(0))
    posterior, sites, absorbed = absorb_rows(kernel, prior_only(2), empty, block)
    settled = propagate(kernel, block, sites)
    assert settled.converged
    swept = posterior_from_sites(kernel, block.X, settled.sites)
    assert_same(kernel, posterior, swept, atol=0.15)
    assert_allclose(absorbed.log_evidence, settled.log_evidence, atol=0.5)
