"""Running experiments: computes what is not on disk yet, in this process or in several.

A unit of work is one method in one run of one setting. Every unit is kept as soon as it is done, so that
a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from gleangp._version import __version__
from gleangp.exceptions import DatasetError
from gleangp.reproduce import records
from gleangp.reproduce.experiment import Context, Experiment
from gleangp.reproduce.records import Record

Unit = tuple[str, int, str]  # setting, run, method


@dataclass(frozen=True)
class Plan:
    """How to run: the parameters of the command."""

    output: Path
    n_runs: int | None = None  # None: the experiment's own number
    seed: int = 0
    n_jobs: int = 1
    quick: bool = False
    methods: tuple[str, ...] | None = None  # None: all
    settings: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Results:
    """All records of an experiment, and how they came about."""

    experiment: Experiment
    records: list[Record]
    options: dict[str, Any]
    seed: int
    n_runs: int
    quick: bool
    n_computed: int  # in this call; the others were on disk
    failures: list[str] = field(default_factory=list)


def run_experiment(
    experiment: Experiment, plan: Plan, advance: Callable[[str], None] = lambda what: None
) -> Results:
    """Everything that the plan asks for; `advance` is told of each unit, done now or found."""
    with threadpool_limits(1):  # many small matrices: one thread is faster than two
        options = _options(experiment, plan)
        n_runs = _n_runs(experiment, plan)
        folder = plan.output / "records" / experiment.name
        prepared = _prepare(experiment, plan, options, folder)
        found: dict[Unit, Record] = {}
        missing: list[Unit] = []
        for unit in units_of(experiment, plan):
            content = records.read(folder, _configuration(experiment, plan, options, unit))
            if content is None:
                missing.append(unit)
            else:
                found[unit] = records.from_json(content)
                advance(_name(experiment, unit))
        failures = []
        for unit, record, failure in _compute(experiment, plan, options, prepared, folder, missing):
            if record is None:
                failures.append(f"{_name(experiment, unit)}: {failure}")
            else:
                found[unit] = record
            advance(_name(experiment, unit))
    ordered = [found[unit] for unit in units_of(experiment, plan) if unit in found]
    computed = len(missing) - len(failures)
    return Results(experiment, ordered, options, plan.seed, n_runs, plan.quick, computed, failures)


def collect(experiment: Experiment, plan: Plan) -> Results:
    """What the folder holds of an experiment, of whatever number of runs; nothing is computed.

    Results of another seed, form (quick or full), version or of changed settings are left where they are.
    """
    options = _options(experiment, plan)
    folder = plan.output / "records" / experiment.name
    runs = [content["run"] for content in records.read_all(folder) if "run" in content]
    everything = replace(plan, n_runs=1 + max(runs, default=-1), methods=None, settings=None)
    kept = []
    for unit in units_of(_without_limits(experiment), everything):
        content = records.read(folder, _configuration(experiment, plan, options, unit))
        if content is not None:
            kept.append(records.from_json(content))
    n_runs = 1 + max((record.run for record in kept), default=-1)
    return Results(experiment, kept, options, plan.seed, n_runs, plan.quick, 0)


def units_of(experiment: Experiment, plan: Plan) -> list[Unit]:
    """All units in order of computation: run by run, so that an early end leaves whole runs."""
    n_runs = _n_runs(experiment, plan)
    limits = {m.name: n_runs if m.n_runs is None else m.n_runs for m in experiment.methods}
    settings, methods = experiment.settings, [m.name for m in experiment.methods]
    if plan.quick and experiment.quick.settings is not None:
        settings = experiment.quick.settings
    if plan.settings is not None:
        settings = tuple(s for s in settings if s in plan.settings)
    if plan.methods is not None:
        methods = [m for m in methods if m in plan.methods]
    elif plan.quick and experiment.quick.methods is not None:
        methods = [m for m in methods if m in experiment.quick.methods]
    return [
        (s, r, m)
        for r in range(n_runs)
        for s in settings
        if r == 0 or s not in experiment.once
        for m in methods
        if r < limits[m]
    ]


def _without_limits(experiment: Experiment) -> Experiment:
    """The experiment with as many runs of every method as there are."""
    return replace(experiment, methods=tuple(replace(m, n_runs=None) for m in experiment.methods))


def _n_runs(experiment: Experiment, plan: Plan) -> int:
    if plan.n_runs is not None:
        return plan.n_runs
    return experiment.quick.n_runs if plan.quick else experiment.n_runs


def _options(experiment: Experiment, plan: Plan) -> dict[str, Any]:
    return {**experiment.options, **(experiment.quick.options if plan.quick else {})}


def _configuration(
    experiment: Experiment, plan: Plan, options: dict[str, Any], unit: Unit | None
) -> dict[str, Any]:
    shared = {
        "experiment": experiment.name,
        "version": experiment.version,
        "gleangp": __version__,
        "seed": plan.seed,
        "options": options,
    }
    if unit is None:
        return {**shared, "prepared": True}
    setting, run, method = unit
    text = experiment.method(method).settings
    return {**shared, "setting": setting, "run": run, "method": method, "settings": text}


def _prepare(experiment: Experiment, plan: Plan, options: dict[str, Any], folder: Path) -> Any:
    if experiment.prepare is None:
        return None
    configuration = _configuration(experiment, plan, options, None)
    found = records.read(folder, configuration)
    if found is None:
        context = Context(experiment.name, "", 0, plan.seed, options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = experiment.prepare(context)
        records.write(folder, configuration, found)
    return found


def _compute(
    experiment: Experiment,
    plan: Plan,
    options: dict[str, Any],
    prepared: Any,
    folder: Path,
    missing: list[Unit],
) -> Iterator[tuple[Unit, Record | None, str]]:
    jobs = (delayed(_run_unit)(experiment, plan, options, prepared, folder, unit) for unit in missing)
    if plan.n_jobs == 1 or len(missing) < 2:
        for function, arguments, _ in jobs:
            yield function(*arguments)
        return
    yield from Parallel(n_jobs=plan.n_jobs, return_as="generator_unordered")(jobs)


_LAST_PROBLEM: dict[tuple[Any, ...], Any] = {}  # of this process: methods of one run follow each other


def _run_unit(
    experiment: Experiment, plan: Plan, options: dict[str, Any], prepared: Any, folder: Path, unit: Unit
) -> tuple[Unit, Record | None, str]:
    """Compute one unit and keep it. An error is reported, not raised: the other units are worth having."""
    setting, run, name = unit
    context = Context(experiment.name, setting, run, plan.seed, options, prepared)
    place = "" if experiment.same_problem else setting
    key = (experiment.name, place, run, plan.seed, str(sorted(options.items())))
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if key not in _LAST_PROBLEM:
                _LAST_PROBLEM.clear()
                _LAST_PROBLEM[key] = experiment.problem(context)
            problem = _LAST_PROBLEM[key]
            start, processor = time.perf_counter(), time.process_time()
            outcome = experiment.method(name).run(problem, context)
            seconds, processor = time.perf_counter() - start, time.process_time() - processor
        except DatasetError:
            raise  # no other unit would fare better
        except (ArithmeticError, ValueError, RuntimeError) as error:
            return unit, None, f"{type(error).__name__}: {error}"
    said = sorted({f"{w.category.__name__}: {str(w.message)[:200]}" for w in caught})[:5]
    values = {column: float(value) for column, value in outcome.values.items()}
    record = Record(setting, name, run, values, outcome.shown, seconds, processor, said)
    records.write(folder, _configuration(experiment, plan, options, unit), records.to_json(record))
    return unit, record, ""


def _name(experiment: Experiment, unit: Unit) -> str:
    setting, run, method = unit
    return f"{experiment.name} {setting + ' ' if setting else ''}run {run + 1}: {method}"
