"""The short forms of the fuzzers; each has a long one that is a command (see the modules)."""

import os

import pytest

from tests.endurance.kills import kills
from tests.endurance.mutants import answers, models, mutants, saved
from tests.endurance.random_fits import random_fits

quiet = pytest.mark.filterwarnings("ignore")


@quiet
def test_models_that_are_mutated_are_sound():
    """What the mutants are made of predicts finite numbers, and there is one of every estimator."""
    found = models()
    names = {type(model).__name__ for model in found.values()}
    assert {"SparseGPRegressor", "SparseGPClassifier", "SparseGPOrdinal", "HierarchicalGPRegressor"} <= names
    assert {"SharedLatentGPRegressor", "SharedLatentGPClassifier", "TaskColumn", "TableModel"} <= names
    assert all(len(answers(model)) for model in found.values())
    assert len(saved()) > len(found)


@pytest.mark.slow
def test_mutants():
    """2000 mutants of model files are refused, or predict finite numbers; both happen."""
    bad: list[str] = []
    ended = mutants(2000, seed=10**6, report=bad.append)
    assert bad == []
    assert ended["refused"] > 1000
    assert ended["finite"] > 100


@pytest.mark.slow
def test_random_fits():
    """Random fits are finite, or refused with an error of gleangp's own; both happen."""
    bad: list[str] = []
    ended = random_fits(100, seed=10**6, report=bad.append)
    assert bad == []
    assert ended["finite"] > 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kills():
    """No kill while saving damages a file or leaves one behind."""
    assert kills(20) == {"kills": 20, "damaged": 0, "left": 0}
