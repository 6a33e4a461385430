"""Choices that a fit made, as data and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gleangp._typing import FloatArray


@dataclass(frozen=True)
class Decision:
    """One choice.

    Attributes
    ----------
    what : str
        What was decided, for example "smoothness".
    chosen : str
        What was taken.
    numbers : dict
        The alternatives and the numbers on which the choice rests; empty if there was none to weigh.
    reason : str
        The choice in a sentence.

    Examples
    --------
    >>> print(Decision("smoothness", "RBF", {"RBF": 0.5, "Matern 1.5": 0.3}, "RBF has the highest evidence."))
    smoothness: RBF. RBF has the highest evidence.
    """

    what: str
    chosen: str
    numbers: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.chosen}. {self.reason}"


def in_standard_errors(differences: FloatArray) -> float:
    """The mean of paired differences over its standard error; infinite if they are equal, but not zero."""
    mean, error = np.mean(differences), np.std(differences, ddof=1) / np.sqrt(len(differences))
    return float(mean / error if error > 0.0 else np.inf * np.sign(mean) if mean else 0.0)


@dataclass(frozen=True)
class Choice:
    """Which coupling a model has, and why.

    Attributes
    ----------
    name : str
        "kernel", "function" or "coregion".
    scores : dict
        Log evidence of each coupling that was tried, less what its parameters cost (nats).
    reason : str
        The choice in words.
    """

    name: str
    scores: dict[str, float]
    reason: str

    def __str__(self) -> str:
        return self.name


def decisions_on_copies(models: list[Any], *, asked: bool) -> list[Decision]:
    """Why predictions are from active points, unless that was `asked` for; whether copies help other rows."""
    decisions = []
    if not asked:
        reason = "Transformed copies compete for the active set, from which alone predictions are made."
        decisions.append(Decision("posterior", "active", {}, reason))
    found = [model.virtual_scores for model in models if model.virtual_scores is not None]
    if found:
        with_copies, alone, errors = np.mean(found, axis=0)
        worse = errors * np.sqrt(len(found)) < -2.0  # of the mean over binary problems
        reason = "They were asked for. Rows that are not active are predicted "
        reason += "worse with them: rows alone may be better." if worse else "no worse with them."
        numbers = {"copies": float(with_copies), "rows alone": float(alone)}
        decisions.append(Decision("invariances", "copies", numbers, reason))
    return decisions
