"""Which coupling a model has."""

from __future__ import annotations

from dataclasses import dataclass


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
