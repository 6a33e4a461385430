"""Selection and learning over several tasks, against the authors' toolbox (Lawrence & Platt 2004)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gleangp.inference.block import Block
from gleangp.inference.posterior import Sites, posterior_from_sites
from gleangp.selection.runs import GreedyRun, entropy_reduction
from gleangp.selection.selectors import EntropySelector
from tests.reference.algorithm2 import one_round_each, rounds
from tests.reference.ivm_cases import (
    ATOL,
    ENTROPY_ATOL,
    LOG_TWO_PI,
    OBJECTIVE_SLACK,
    RTOL,
    assert_gradient,
    best_objective,
    is_firm,
)
from tests.reference.kernels_from_reference import ReferenceKernel, kernel_from_reference
from tests.reference.noise_from_reference import noise_from_reference, targets_from_reference
from tests.reference.reference_data import entry_names, entry_names_with, load
from tests.unit.gp_twins import site_log_evidence

FILE = "mtivm.json"
CASES = entry_names(FILE)


@dataclass(frozen=True, eq=False)
class Case:
    """One entry of the file."""

    kernel: ReferenceKernel
    blocks: list[Block]
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    def sites(self):
        """The reference's sites, per task."""
        means = self.outputs["site_mean_per_task"]
        precisions = self.outputs["site_precision_per_task"]
        return [
            Sites(np.array(m, dtype=float), np.array(p, dtype=float))
            for m, p in zip(means, precisions, strict=True)
        ]

    def active_X(self):
        """Active points, per task."""
        active = self.outputs["active_per_task"]
        return [b.X[np.array(a, dtype=int)] for b, a in zip(self.blocks, active, strict=True)]

    def log_evidence_per_task(self, kernel):
        """Values and gradients in theta of the tasks that have active points."""
        return [
            site_log_evidence(kernel, X, s)
            for X, s in zip(self.active_X(), self.sites(), strict=True)
            if len(s)
        ]

    def log_evidence(self, kernel):
        """Their sum."""
        parts = self.log_evidence_per_task(kernel)
        return sum(p[0] for p in parts), np.sum([p[1] for p in parts], axis=0)

    @property
    def two_pi(self):
        """What the toolbox leaves out of a log-likelihood."""
        return -0.5 * len(self.outputs["task_order"]) * LOG_TWO_PI


def read(name):
    entry = load(FILE)[name]
    inputs = entry["inputs"]
    kernel = kernel_from_reference(inputs["kernel"])
    blocks = [
        Block(np.array(X), targets_from_reference(y), noise_from_reference(noise))
        for X, y, noise in zip(inputs["X"], inputs["y"], inputs["noise"], strict=True)
    ]
    return Case(kernel, blocks, inputs, entry["outputs"])


def replay(case):
    """The reference order, task by task; every forced point must be within rounding of the best."""
    runs = [GreedyRun(case.kernel.kernel, b, entropy_reduction) for b in case.blocks]
    rows = [iter(a) for a in case.outputs["active_per_task"]]
    gains = []
    for task in case.outputs["task_order"]:
        row = next(rows[task])
        offers = [run.scores() for run in runs]
        assert offers[task][row] >= max(o.max() for o in offers) - ENTROPY_ATOL
        gains.append(offers[task][row])
        runs[task].take(row)
    assert [next(r, None) for r in rows] == [None] * len(rows)
    return runs, np.array(gains)


def test_reference_has_cases():
    """The file is not empty, so that the tests below test something."""
    assert load(FILE)


@pytest.mark.parametrize("name", CASES)
def test_replay(name):
    """In the reference's order every step is the best one, with the reference's gains and marginals."""
    case = read(name)
    runs, gains = replay(case)
    assert_allclose(gains, case.outputs["delta_entropy_nats"], rtol=0, atol=ENTROPY_ATOL)
    for run, sites, mean, var in zip(
        runs,
        case.sites(),
        case.outputs["train_mean_per_task"],
        case.outputs["train_var_per_task"],
        strict=True,
    ):
        assert_allclose(run.filter.mean, mean, rtol=RTOL, atol=ATOL)
        assert_allclose(run.filter.var, var, rtol=RTOL, atol=ATOL)
        ours = run.filter.sites()
        assert_allclose(ours.mean, sites.mean, rtol=RTOL, atol=ATOL)
        assert_allclose(ours.precision, sites.precision, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", CASES)
def test_selection_across_tasks(name):
    """The merge of the tasks' own sequences is the order of Lawrence & Platt 2004, algorithm 2."""
    case = read(name)
    n_active = len(case.outputs["task_order"])
    selection = EntropySelector().select(
        case.kernel.kernel, case.blocks, n_active, rng=np.random.default_rng(0)
    )
    assert np.all(np.isfinite(selection.gain))
    if is_firm(case.outputs):  # otherwise `test_replay` checks the case
        gains = case.outputs["delta_entropy_nats"]
        assert_allclose(selection.gain, gains, rtol=0, atol=ENTROPY_ATOL)
        assert_array_equal(selection.order, case.outputs["task_order"])
        for ours, theirs in zip(selection.active, case.outputs["active_per_task"], strict=True):
            assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_evidence(name):
    """Log-likelihoods per task and in total, and gradients, here and at other parameters."""
    case = read(name)
    outputs = case.outputs
    parts = case.log_evidence_per_task(case.kernel.kernel)
    sizes = np.array([len(s) for s in case.sites() if len(s)])
    theirs = np.array(
        [
            v
            for v, s in zip(outputs["log_likelihood_active_per_task_without_2pi"], case.sites(), strict=True)
            if len(s)
        ]
    )
    assert_allclose([p[0] for p in parts] + 0.5 * sizes * LOG_TWO_PI, theirs, rtol=RTOL, atol=ATOL)
    value, dtheta = case.log_evidence(case.kernel.kernel)
    total = case.two_pi - value
    assert_allclose(total, outputs["negative_log_likelihood_total"], rtol=RTOL, atol=ATOL)
    gradient = outputs["grad_negative_log_likelihood"]
    assert_gradient(case.kernel.natural_gradient(-dtheta), gradient["natural"])
    assert_gradient(case.kernel.transformed_gradient(-dtheta), gradient["transformed"])
    assert case.kernel.names == outputs["kernel_parameters"]["names"]
    for elsewhere in outputs["kernel_objective_at"]:
        moved = case.kernel.at(elsewhere["natural"])
        value, dtheta = case.log_evidence(moved.kernel)
        expected = elsewhere["negative_log_likelihood_total"]
        assert_allclose(case.two_pi - value, expected, rtol=RTOL, atol=ATOL)
        assert_gradient(moved.transformed_gradient(-dtheta), elsewhere["grad_transformed"])


@pytest.mark.parametrize("name", CASES)
def test_prediction(name):
    """Every task predicts from its own active points."""
    case = read(name)
    X_test = np.array(case.inputs["X_test"])
    for X, sites, mean, var in zip(
        case.active_X(),
        case.sites(),
        case.outputs["test_mean_per_task"],
        case.outputs["test_var_per_task"],
        strict=True,
    ):
        posterior = posterior_from_sites(case.kernel.kernel, X, sites)
        ours_mean, ours_var = posterior.predict(case.kernel.kernel, X_test)
        assert_allclose(ours_mean, mean, rtol=RTOL, atol=ATOL)
        assert_allclose(ours_var, var, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", entry_names_with(FILE, "behaviour_after_scg_on_fixed_active_set"))
def test_optimum_on_fixed_active_set(name):
    """Our optimiser ends at an objective at least as good as scaled conjugate gradients did."""
    case = read(name)
    theirs = case.outputs["behaviour_after_scg_on_fixed_active_set"]["negative_log_likelihood_total"]
    enough = theirs + OBJECTIVE_SLACK - case.two_pi
    assert best_objective(case.log_evidence, case.kernel.kernel, enough) <= enough


@pytest.mark.parametrize("name", entry_names_with(FILE, "behaviour_algorithm2"))
def test_algorithm_2(name):
    """A round of "select, learn the kernel" ends at least as well as the reference's."""
    case = read(name)
    theirs = case.outputs["behaviour_algorithm2"]
    n_active = len(case.outputs["task_order"])
    enough = case.two_pi - np.array(theirs["negative_log_likelihood_after_each"]) - OBJECTIVE_SLACK
    assert np.all(
        one_round_each(case.kernel, case.blocks, n_active, theirs["natural_after_each"], enough) >= enough
    )
    if not any(b.noise.precision_depends_on_mean for b in case.blocks):
        _, best = rounds(case.kernel.kernel, case.blocks, n_active, theirs["outer_iterations"])
        assert np.all(np.diff(best) >= 0.0)
