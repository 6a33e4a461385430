"""The short forms of the fuzzers; each has a long one that is a command (see the modules)."""

import io
import json
import os

import pytest

from gleangp import load
from gleangp.exceptions import ModelFileError
from gleangp.io.files import content_hash
from tests.endurance.kills import kills
from tests.endurance.mutants import Saved, answers, models, mutants, saved
from tests.endurance.random_fits import random_fits

quiet = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
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
@quiet
@pytest.mark.parametrize(("kind", "name"), [("ColumnTransformer", "transformers"), ("Pipeline", "steps")])
def test_parameters_of_pipelines_are_whole(kind, name):
    """A step without its parts is refused at load, though no transform asks for it."""
    [pipeline] = [part for part in saved() if part.name == "pipeline"]
    manifest = json.loads(json.dumps(pipeline.manifest))
    for part in manifest["objects"]:
        if part["class"] == kind:
            dict(part["state"]["parameters"]["dict"])[name][0]["tuple"] = []
    manifest["sha256"] = content_hash(manifest, pipeline.arrays)
    with pytest.raises(ModelFileError, match=r"not enough values|index out of range"):
        load(io.BytesIO(Saved("", manifest, pipeline.arrays).written()))


@pytest.mark.slow
def test_mutants():
    """Mutants of model files are refused, or predict finite numbers; both happen."""
    bad: list[str] = []
    ended = mutants(800, seed=10**6, report=bad.append)
    assert bad == []
    assert ended["refused"] > 400
    assert ended["finite"] > 40


@pytest.mark.slow
def test_random_fits():
    """Random fits are finite, or refused with an error of gleangp's own; both happen."""
    bad: list[str] = []
    ended = random_fits(40, seed=10**6, report=bad.append)
    assert bad == []
    assert ended["finite"] > 16


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kills():
    """No kill while saving damages a file or leaves one behind."""
    assert kills(20) == {"kills": 20, "damaged": 0, "left": 0}
