"""Docstrings of estimators, completed from where a parameter, attribute or result is described once.

What a docstring leaves out is looked for: parameters and attributes of a class in the docstrings of its
bases, parameters and results of a method in the texts below. So `help` and the site show them.
"""

import inspect
import re
from typing import Any

_OF_METHODS = """
X : frame or array-like of shape (n, p)
    Inputs.
y : array-like of shape (n,)
    Labels, or targets; where there is none, the value of `unlabeled`, or NaN.
tasks : array-like of shape (n,), default=None
    Task of each row, if the model was fitted with tasks and names no column for them.
exposure, trials : array-like of shape (n,), default=None
    Of the rows, for counts; None: 1.
constraints : list of Order and DifferenceOrder, default=None
    What is known about the order of values at rows of this X, labelled or not.
random_state : int, RandomState, Generator or None, default=0
    For the draws.
sample_weight : array-like of shape (n,), default=None
    Weight of each row.
"""
_OF_METHOD = {
    "fit": """
X : frame or array-like of shape (n, p)
    Inputs, with the task column if `task` names one.
tasks : array-like of shape (n,), default=None
    Task of each row. None, and no task column: one task.
""",
    "add_task": """
X : frame or array-like of shape (m, p)
    Its rows, with or without the task column. None or no rows: the task is predicted from the prior.
y : array-like of shape (m,)
    Its labels, of classes seen in `fit`, or its targets.
task : str, int or bool
    Its name.
exposure, trials : array-like of shape (m,), default=None
    Of the rows, for counts; None: 1.
""",
}
_RETURNS = {
    **dict.fromkeys(("fit", "partial_fit", "add_task"), "self"),
    "predict": "ndarray of shape (n,)",
    "predict_proba": "ndarray of shape (n, c)\n    Rows sum to one; columns in the order of `classes_`.",
    "decision_function": "ndarray of shape (n,) or (n, c)\n"
    "    Positive for the second of two classes. With more classes, one column for each.",
    "score": "float",
}
_HEADING = re.compile(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", re.MULTILINE)


def describe_methods(cls: type, of_methods: str = "") -> None:
    """Complete the docstrings of the methods of a class; `of_methods` describes parameters of several."""
    for name, part in vars(cls).items():
        method = getattr(part, "fn", part)  # of scikit-learn's available_if
        if inspect.isfunction(method) and method.__doc__ and not name.startswith("_"):
            known = _entries(_OF_METHODS) | _entries(of_methods) | _entries(_OF_METHOD.get(name, ""))
            method.__doc__ = _completed(method, known, {}, _RETURNS.get(name, ""))


def describe(function: Any, shared: str, returns: str = "") -> None:
    """Complete the docstring of a function by what `shared` says of its parameters, and by its result."""
    function.__doc__ = _completed(function, _entries(shared), {}, returns)


def describe_parameters(cls: type) -> None:
    """Complete the docstring of a class by parameters and attributes of its bases."""
    bases = [_sections(base.__doc__ or "") for base in cls.__mro__[:0:-1]]
    parameters, attributes = (
        {name: text for base in bases for name, text in _entries(base.get(title, "")).items()}
        for title in ("Parameters", "Attributes")
    )
    cls.__doc__ = _completed(cls, parameters, attributes)


def _completed(part: Any, known: dict[str, str], attributes: dict[str, str], returns: str = "") -> str:
    """The docstring with parameters in the order of the signature, attributes (own ones win), and result."""
    sections = _sections(part.__doc__ or "")
    described, own = (_entries(sections.pop(title, "")) for title in ("Parameters", "Attributes"))
    known = known | described
    names = [str(p).split(":")[0].split("=")[0] for p in inspect.signature(part).parameters.values()]
    listed = [known[name] for name in (*names, *described) if name in known]
    in_order = {
        "": sections.pop(""),
        "Parameters": "\n".join(dict.fromkeys(listed)),  # several names can have one description
        "Attributes": "\n".join(dict.fromkeys((own | attributes | own).values())),
        "Returns": returns,
        **sections,
    }
    titled = {title: f"{title}\n{'-' * len(title)}\n" if title else "" for title in in_order}
    return "\n\n".join(titled[title] + text for title, text in in_order.items() if text)


def _sections(doc: str) -> dict[str, str]:
    """Title of a section -> its text; what stands before the first has none."""
    head, *rest = _HEADING.split(inspect.cleandoc(doc))
    return {"": head.strip(), **dict(zip(rest[::2], (text.strip() for text in rest[1::2]), strict=True))}


def _entries(text: str) -> dict[str, str]:
    """Name -> its description; of several names that have one, each."""
    parts = re.split(r"\n+(?=\S)", text.strip())
    return {name: part for part in parts if part for name in part.split(" : ")[0].split(", ")}
