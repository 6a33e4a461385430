"""The public names are a promise: this list changes only on purpose."""

import ast
import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

import gleangp
from gleangp import exceptions
from tests.processes import python

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
    "TaskKFold",
    "TaskRelevance",
    "__version__",
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


@pytest.mark.parametrize("name", [*PUBLIC, "dask"])
def test_name_is_there_and_documented(name):
    """Every public name can be imported, is listed by dir(), and says what it is."""
    value = getattr(gleangp, name)
    assert name in dir(gleangp)
    assert name == "__version__" or inspect.getdoc(value)


def test_homes_and_type_checkers_agree():
    """What is imported lazily is what type checkers see, and it lives where `_HOME` says."""
    assert set(gleangp._HOME) == (set(gleangp.__all__) | {"dask"}) - {"__version__"}
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


def python_without(modules, code):
    """What a new process prints that cannot import some modules."""
    start = f"import sys; sys.modules.update(dict.fromkeys({modules}))\n"
    return python("-c", start + code)


def test_everything_without_extras():
    """`from gleangp import *` needs no optional package; `gleangp.dask` alone names the extra it needs."""
    modules = ["dask", "distributed", "matplotlib", "pandas", "pooch", "pynndescent", "rich", "typer"]
    code = (
        "from gleangp import *\nassert SparseGPRegressor and plots and datasets\nimport gleangp\n"
        "try:\n    gleangp.dask\nexcept ImportError as error:\n    print(error)"
    )
    assert "pip install 'gleangp[dask]'" in python_without(modules, code)


@pytest.mark.slow
def test_the_docs_extra_is_enough_for_the_reference():
    """Every name of the API page can be imported with the packages of the extra `docs` alone."""
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]

    def packages(extra):
        found = set()
        for requirement in extras[extra]:
            name, inner = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()
            if name == "gleangp":
                found |= set().union(*map(packages, inner.split(",")))
            else:
                found.add(name.replace("-", "_"))
        return found

    missing = sorted(set().union(*map(packages, extras)) - packages("docs"))
    assert {"pooch", "pynndescent"} <= set(missing)
    page = (root / "docs" / "api.rst").read_text(encoding="utf-8")
    names = re.findall(r"^(?:   |.. auto\w+:: gleangp\.)([A-Za-z_.]+)$", page, re.MULTILINE)
    assert "dask.fit" in names
    code = "import gleangp\nfrom operator import attrgetter\n"
    code += f"for name in {names}:\n    attrgetter(name)(gleangp)\nprint('all')"
    assert python_without(missing, code) == "all"


def test_unknown_name():
    """A name that is not there is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match=r"module 'gleangp' has no attribute 'nothing'"):
        gleangp.nothing  # noqa: B018 the access is the test


def test_import_is_cheap():
    """`import gleangp` loads neither the estimators nor anything optional."""
    code = (
        "import sys; import gleangp; "
        "loaded = {'sklearn', 'scipy', 'pandas', 'polars', 'matplotlib', 'numba', 'dask', 'typer'};"
        "print(sorted(loaded & set(sys.modules)))"
    )
    assert python("-c", code) == "[]"


def test_version():
    """The version is a string of three numbers."""
    assert [part.isdigit() for part in gleangp.__version__.split(".")] == [True] * 3


NOT_ABOUT_INPUT = ("ClusterError", "GleanError", "InputWarning", "NewTaskWarning")


@pytest.mark.parametrize("name", [n for n in exceptions.__all__ if n not in NOT_ABOUT_INPUT])
def test_errors_are_value_errors(name):
    """Errors about input are `GleanError` and `ValueError`, and say what they are about."""
    error = getattr(exceptions, name)
    assert issubclass(error, exceptions.GleanError)
    assert issubclass(error, ValueError)
    assert error.__doc__
