"""The public names are a promise: this list changes only on purpose."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gleangp
from gleangp import exceptions

PUBLIC = [
    "ArcSine",
    "CoregionCoupling",
    "DifferenceOrder",
    "EntropySelector",
    "FunctionCoupling",
    "GraphSelector",
    "HierarchicalGPRegressor",
    "InformationGainSelector",
    "LabelRelevance",
    "Order",
    "PosteriorRelevance",
    "RandomSelector",
    "ResidualSelector",
    "ScaledInputs",
    "SharedLatentGPClassifier",
    "SharedLatentGPRegressor",
    "SparseGPClassifier",
    "SparseGPOrdinal",
    "SparseGPRegressor",
    "TaskColumn",
    "TaskRelevance",
    "__version__",
    "dask",
    "datasets",
    "exceptions",
    "load",
    "noise",
    "plots",
    "report",
    "rotations",
    "save",
    "stack_outputs",
    "translations",
    "unstack_outputs",
]


def test_all_is_pinned_and_sorted():
    """`__all__` is this list, sorted."""
    assert gleangp.__all__ == PUBLIC == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_name_is_there_and_documented(name):
    """Every public name can be imported, is listed by dir(), and says what it is."""
    value = getattr(gleangp, name)
    assert name in dir(gleangp)
    assert name == "__version__" or inspect.getdoc(value)


def test_homes_and_type_checkers_agree():
    """What is imported lazily is what type checkers see, and it lives where `_HOME` says."""
    assert set(gleangp._HOME) == set(gleangp.__all__) - {"__version__"}
    tree = ast.parse(Path(gleangp.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = {}
    for node in block.body:
        for alias in node.names:
            is_module = node.module == "gleangp"
            imports[alias.name] = f"gleangp.{alias.name}" if is_module else node.module
    assert imports == gleangp._HOME
    for name, home in gleangp._HOME.items():
        module = importlib.import_module(home)
        assert module.__name__ == f"gleangp.{name}" or hasattr(module, name)


def test_unknown_name():
    """A name that is not there is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match=r"module 'gleangp' has no attribute 'nothing'"):
        gleangp.nothing  # noqa: B018 the access is the test


def test_import_is_cheap():
    """`import gleangp` loads neither the estimators nor anything optional."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import gleangp; "
        "loaded = {'sklearn', 'scipy', 'pandas', 'polars', 'matplotlib', 'numba', 'dask', 'typer'};"
        "print(sorted(loaded & set(sys.modules)))"
    )
    source = str(Path(gleangp.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, source], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_version():
    """The version is a string of three numbers."""
    assert [part.isdigit() for part in gleangp.__version__.split(".")] == [True] * 3


@pytest.mark.parametrize("name", [n for n in exceptions.__all__ if n not in ("ClusterError", "GleanError")])
def test_errors_are_value_errors(name):
    """Errors about input are `GleanError` and `ValueError`, and the docstring draws each."""
    error = getattr(exceptions, name)
    assert issubclass(error, exceptions.GleanError)
    assert issubclass(error, ValueError)
    assert name in exceptions.__doc__
