"""Choices that a fit made, as data and in words."""

from __future__ import annotations

from dataclasses import dataclass, field


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
