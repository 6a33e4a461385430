"""Expectation propagation over a fixed active set, against the authors' toolbox."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.inference.block import Block
from gleangp.inference.posterior import Sites, filter_in_order, posterior_from_sites, training_marginals
from gleangp.models.active.learn import active_sites
from tests.reference.ivm_cases import ATOL, LOG_TWO_PI, RTOL, read_case
from tests.reference.reference_data import entry_names, load
from tests.unit.gp_twins import site_log_evidence
from tests.unit.sequential_ep import propagate

FILE = "ep.json"
CASES = entry_names(FILE)


def read(name):
    """The case, its active rows, their block, and the sites of filtering."""
    case = read_case(FILE, name)
    active = np.array(case.outputs["active"])
    kept = Block(case.X, case.Y[:, 0], case.noises[0]).at(active)
    return case, active, kept, filter_in_order(case.kernel.kernel, kept)


def assert_sites(sites: Sites, theirs, rtol=RTOL):
    assert_allclose(sites.mean, theirs["site_mean"], rtol=rtol, atol=ATOL)
    assert_allclose(sites.precision, theirs["site_precision"], rtol=rtol, atol=ATOL)


def without_two_pi(case, kept, sites):
    """Log-likelihood of the active points as the toolbox counts it."""
    value, _ = site_log_evidence(case.kernel.kernel, kept.X, sites)
    return value + 0.5 * len(sites) * LOG_TWO_PI


def test_reference_has_cases():
    """The file is not empty, so that the tests below test something."""
    assert load(FILE)


@pytest.mark.parametrize("name", CASES)
def test_start(name):
    """Filtering in the order of `active` gives the sites that EP starts from."""
    case, _, kept, sites = read(name)
    theirs = case.outputs["adf"]
    assert_sites(sites, theirs)
    value = theirs["log_likelihood_active_without_2pi"]
    assert_allclose(without_two_pi(case, kept, sites), value, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", CASES)
def test_one_sweep(name):
    """Every site is taken out and put back at its cavity, once."""
    case, _, kept, sites = read(name)
    swept = propagate(case.kernel.kernel, kept, sites, max_sweeps=1)
    assert swept.n_sweeps == 1
    assert not swept.converged
    assert_sites(swept.sites, case.outputs["after_one_sweep"])
    changes = case.outputs["converged"]["max_precision_change_per_sweep"]
    assert_allclose(swept.change, changes[0], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", CASES)
def test_converged(name):
    """Sites, marginals of all rows and the EP evidence when no site moves any more."""
    case, active, kept, sites = read(name)
    theirs = case.outputs["converged"]
    # The reference is as far from the fixed point as its last sweep moved.
    rtol = max(RTOL, 10.0 * theirs["max_precision_change_per_sweep"][-1])
    settled, log_evidence = active_sites(case.kernel.kernel, kept, sites, True)
    assert_sites(settled, theirs, rtol=rtol)
    evidence = theirs["ep_log_marginal_likelihood"]
    assert_allclose(log_evidence, evidence, rtol=RTOL, atol=ATOL)
    twin = propagate(case.kernel.kernel, kept, sites, tol=1e-12)
    assert twin.converged
    assert_allclose(twin.log_evidence, evidence, rtol=RTOL, atol=ATOL)
    ours = without_two_pi(case, kept, settled)
    assert_allclose(ours, theirs["log_likelihood_active_without_2pi"], rtol=rtol)
    posterior = posterior_from_sites(case.kernel.kernel, kept.X, settled)
    mean, var = training_marginals(case.kernel.kernel, posterior, case.X, active)
    assert_allclose(mean, theirs["train_mean"], rtol=rtol, atol=ATOL)
    assert_allclose(var, theirs["train_var"], rtol=rtol, atol=ATOL)
