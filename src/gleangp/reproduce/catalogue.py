"""Which experiments there are: the modules of `experiments` whose names do not begin with an underscore."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from gleangp.reproduce.experiment import Experiment

_FOLDER = Path(__file__).parent / "experiments"
_FIRST = (  # the order of the papers, then what is not in one; others follow by name
    "sines", "kl", "phonemes", "crescent", "usps-unlabelled", "usps-invariance", "haberman", "iris", "mpg",
    "landmine", "slump", "latent", "transfer-single", "transfer-joint", "sarcos", "school",
    "coupling-school", "coupling-sarcos", "coupling-landmine", "coupling-synthetic",
)  # fmt: skip


def names_of_experiments() -> list[str]:
    """All names, found without importing any of them."""
    found = {p.stem.replace("_", "-") for p in _FOLDER.glob("*.py") if not p.stem.startswith("_")}
    return [n for n in _FIRST if n in found] + sorted(found - set(_FIRST))


def load_experiment(name: str) -> Experiment:
    """The experiment of that name; its module defines `EXPERIMENT`."""
    known = names_of_experiments()
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no experiment {name!r}.{hint} Known: {', '.join(known)}.")
    module = import_module(f"gleangp.reproduce.experiments.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    if experiment.name != name:
        raise ValueError(f"the experiment in {module.__name__} is called {experiment.name!r}.")
    return experiment
