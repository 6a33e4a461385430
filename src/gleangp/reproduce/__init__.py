"""The laboratory: the tables and figures of the papers, measured again.

An experiment is one file in `experiments`: its data, split, methods, measures and the paper's numbers.
`runner` computes what is missing and keeps every single result; `summary` compares with the paper; `output`
writes tables, plots and the page. On the command line: `gleangp reproduce`.
"""

from gleangp.reproduce.catalogue import load_experiment, names_of_experiments
from gleangp.reproduce.experiment import Column, Context, Experiment, Method, Outcome, Printed, Quick
from gleangp.reproduce.output import write_results
from gleangp.reproduce.runner import Plan, run_experiment

__all__ = [
    "Column",
    "Context",
    "Experiment",
    "Method",
    "Outcome",
    "Plan",
    "Printed",
    "Quick",
    "load_experiment",
    "names_of_experiments",
    "run_experiment",
    "write_results",
]
