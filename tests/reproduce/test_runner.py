"""Running, keeping, resuming: what is on disk is not computed again, and nothing is lost."""

import csv
import json
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gleangp
from gleangp.exceptions import DatasetError
from gleangp.reproduce import (
    Column,
    Method,
    Outcome,
    Plan,
    Printed,
    load_experiment,
    names_of_experiments,
    run_experiment,
    write_results,
)
from gleangp.reproduce.markdown import render_markdown
from gleangp.reproduce.records import key_of, read, write
from gleangp.reproduce.runner import collect, units_of
from gleangp.reproduce.summary import cells, comparisons, format_lead, leads, verdict
from tests.reproduce import toy

SOURCE = str(Path(gleangp.__file__).parents[1])


def test_results(tmp_path):
    """Every method runs in every setting of every run; the numbers are those of the methods."""
    results = run_experiment(toy.make(), Plan(tmp_path))
    assert len(results.records) == results.n_computed == 3 * 2 * 3
    found = {(c.setting, c.method): c for c in cells(results) if c.column == "error"}
    assert found["1", "a"].mean == pytest.approx(11.0, abs=0.01)
    assert found["2", "c"].mean == pytest.approx(23.0, abs=0.01)
    assert found["1", "a"].n == 3
    assert 0 < found["1", "a"].spread < 0.01


def test_same_problem_for_all_methods(tmp_path):
    """Runs differ, methods and settings of one run see the same draw."""
    results = run_experiment(toy.make(), Plan(tmp_path))
    rest = {}
    for r in results.records:
        offset = {"a": 1.0, "b": 2.0, "c": 3.0}[r.method] + 10 * float(r.setting)
        rest.setdefault(r.run, set()).add(round(r.values["error"] - offset, 9))
    assert [len(v) for v in rest.values()] == [1, 1, 1]
    assert len(set.union(*rest.values())) == 3


def test_second_run_computes_nothing(tmp_path):
    """All results are found; more runs compute the new ones only; another seed computes all."""
    log = tmp_path / "log"
    first = run_experiment(toy.make(log), Plan(tmp_path))
    again = run_experiment(toy.make(log), Plan(tmp_path))
    assert again.n_computed == 0
    assert again.records[0].values["error"] == first.records[0].values["error"]
    assert math.isnan(again.records[0].values["extra"])
    assert again.records[0].shown == {"points": [1, 2]}
    more = run_experiment(toy.make(log), Plan(tmp_path, n_runs=4))
    assert more.n_computed == 6
    assert run_experiment(toy.make(log), Plan(tmp_path, seed=1)).n_computed == 18
    assert len(log.read_text().splitlines()) == 18 + 6 + 18


@pytest.mark.parametrize("change", [{"version": 2}, {"options": {"size": 3}}])
def test_other_configuration_is_computed(tmp_path, change):
    """A new version of the protocol, or other options, do not take old results."""
    run_experiment(toy.make(), Plan(tmp_path))
    assert run_experiment(toy.make(**change), Plan(tmp_path)).n_computed == 18


def test_changed_settings_of_a_method(tmp_path):
    """Only the method whose settings changed is computed again."""
    before = toy.make()
    run_experiment(before, Plan(tmp_path))
    a, b, c = before.methods
    changed = Method(c.name, c.run, c.role, "offset 4.0")
    assert run_experiment(toy.make(methods=(a, b, changed)), Plan(tmp_path)).n_computed == 6


def test_quick_and_methods(tmp_path):
    """The quick form has its own runs and settings; methods can be picked."""
    assert units_of(toy.make(), Plan(tmp_path, quick=True)) == [("2", 0, m) for m in "abc"]
    assert units_of(toy.make(), Plan(tmp_path, n_runs=1, methods=("b",))) == [("1", 0, "b"), ("2", 0, "b")]
    assert units_of(toy.make(), Plan(tmp_path, n_runs=1, settings=("2",))) == [("2", 0, m) for m in "abc"]


def test_settings_without_chance_run_once(tmp_path):
    """A setting in which nothing is random has one run, the others all."""
    units = units_of(toy.make(once=("1",)), Plan(tmp_path, methods=("b",)))
    assert units == [("1", 0, "b"), ("2", 0, "b"), ("2", 1, "b"), ("2", 2, "b")]


def test_methods_with_fewer_runs(tmp_path):
    """A method may have fewer runs than the paper's; a plan bounds all; every line says its number."""
    a, b, c = toy.make().methods
    experiment = toy.make(methods=(a, b, replace(c, n_runs=2)), settings=("1",), paper={})
    results = run_experiment(experiment, Plan(tmp_path))
    assert Counter(r.method for r in results.records) == {"a": 3, "b": 3, "c": 2}
    assert {cell.method: cell.n for cell in cells(results)} == {"a": 3, "b": 3, "c": 2}
    assert units_of(experiment, Plan(tmp_path, n_runs=1)) == [("1", 0, m) for m in "abc"]
    text = render_markdown([results])
    assert "2 to 3 runs of the paper's 3" in text
    assert "| c | 2 |" in text
    more = toy.make(settings=("1",), paper={})  # without the limit: one run is missing,
    assert run_experiment(more, Plan(tmp_path)).n_computed == 1
    assert len(collect(experiment, Plan(tmp_path)).records) == 9  # and none that is there is left out


@pytest.mark.parametrize("change", [{"n_runs": 0}, {"role": "paper", "n_runs": 2}])
def test_methods_of_the_paper_have_its_runs(change):
    """Fewer runs are for what is in no paper."""
    a, b, c = toy.make().methods
    with pytest.raises(ValueError, match="'c' of experiment 'toy' has n_runs="):
        toy.make(methods=(a, b, replace(c, **change)))


def test_several_processes(tmp_path):
    """Two processes give the same numbers in the same order as one."""
    one = run_experiment(toy.make(), Plan(tmp_path / "one"))
    two = run_experiment(toy.make(), Plan(tmp_path / "two", n_jobs=2))
    assert [(r.setting, r.method, r.run) for r in one.records] == [
        (r.setting, r.method, r.run) for r in two.records
    ]
    assert [r.values["error"] for r in one.records] == [r.values["error"] for r in two.records]


@pytest.mark.slow
def test_killed_run_goes_on(tmp_path):
    """A process killed in the middle loses at most the unit it was at; the next one computes the rest."""
    folder, log = tmp_path / "out", tmp_path / "log"
    command = [sys.executable, toy.__file__, str(folder), str(log)]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    process = subprocess.Popen([*command, "0.1"], env=environment)
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if log.exists() and len(log.read_text().splitlines()) >= 6:
            break
        time.sleep(0.01)
    process.kill()
    assert process.wait() != 0
    started = log.read_text().splitlines()
    kept = len(list((folder / "records").rglob("[!.]*.json")))
    assert len(started) - 1 <= kept <= len(started) < 30
    subprocess.run([*command, "0.0"], env=environment, check=True)
    counts = Counter(log.read_text().splitlines())
    assert len(counts) == 5 * 2 * 3
    assert sum(counts.values()) == 30 + len(started) - kept  # nothing that was kept ran twice
    assert run_experiment(toy.make(), Plan(folder, n_runs=5)).n_computed == 0


def test_collect(tmp_path):
    """What the folder holds is found whatever its number of runs; other seeds and forms are not mixed in."""
    experiment = toy.make()
    run_experiment(experiment, Plan(tmp_path, n_runs=2))
    run_experiment(experiment, Plan(tmp_path, seed=1))
    run_experiment(experiment, Plan(tmp_path, n_runs=4, methods=("b",)))
    found = collect(experiment, Plan(tmp_path, n_runs=1, methods=("a",)))
    counts = Counter(r.method for r in found.records)
    assert counts == {"a": 4, "b": 8, "c": 4}
    assert found.n_runs == 4
    again = run_experiment(experiment, Plan(tmp_path, n_runs=2)).records
    assert [r for r in found.records if r.run < 2] == again
    assert collect(experiment, Plan(tmp_path / "elsewhere")).records == []


def test_broken_record_is_computed_again(tmp_path):
    """A file that cannot be read counts as absent."""
    run_experiment(toy.make(), Plan(tmp_path))
    broken = next((tmp_path / "records").rglob("*.json"))
    broken.write_text('{"content": {')
    assert run_experiment(toy.make(), Plan(tmp_path)).n_computed == 1


def test_failure_is_reported_and_not_kept(tmp_path):
    """One method that fails leaves the others' results, and runs again next time."""

    def fail(problem, context):
        raise ValueError("no such luck")

    a, b, _ = toy.make().methods
    experiment = toy.make(methods=(a, b, Method("c", fail)))
    results = run_experiment(experiment, Plan(tmp_path, n_runs=1))
    assert len(results.records) == 4
    assert results.failures == [f"toy {s} run 1: c: ValueError: no such luck" for s in "12"]
    assert run_experiment(toy.make(), Plan(tmp_path, n_runs=1)).n_computed == 2


def test_missing_data_stops(tmp_path):
    """Without data there is nothing to go on with: the error reaches the user."""

    def problem(context):
        raise DatasetError("no file")

    with pytest.raises(DatasetError, match="no file"):
        run_experiment(toy.make(problem=problem), Plan(tmp_path))


def test_prepared_once(tmp_path):
    """What is prepared is handed to all methods, and kept."""
    calls = []

    def prepare(context):
        calls.append(context.seed)
        return {"scale": 2.5}

    def run(problem, context):
        return toy.Outcome({"error": context.prepared["scale"]})

    experiment = toy.make(prepare=prepare, methods=(Method("a", run),))
    for _ in range(2):
        results = run_experiment(experiment, Plan(tmp_path))
    assert calls == [0]
    assert {r.values["error"] for r in results.records} == {2.5}


def test_key_depends_on_everything(tmp_path):
    """Order of the entries does not matter, each value does."""
    one = {"a": 1, "b": {"c": [1, 2]}}
    assert key_of(one) == key_of({"b": {"c": [1, 2]}, "a": 1})
    assert key_of(one) != key_of({"a": 1, "b": {"c": [2, 1]}})
    write(tmp_path, one, {"x": 1})
    assert read(tmp_path, one) == {"x": 1}
    assert read(tmp_path, {"a": 2}) is None


@pytest.mark.parametrize(
    ("mean", "spread", "printed", "better", "said"),
    [
        (11.0, 1.0, Printed(11.5, 0.6), -1, "within the spread"),
        (10.0, 9.0, Printed(11.5, 0.6), -1, "better"),
        (13.0, 9.0, Printed(11.5, 0.6), -1, "worse"),
        (13.0, 9.0, Printed(11.5, 0.6), 1, "better"),
        (12.1, 9.0, Printed(11.5, 0.6), -1, "within the spread"),
        (13.0, 2.0, Printed(11.5), -1, "within the spread"),
        (13.0, 1.0, Printed(11.5), -1, "worse"),
        (13.0, 1.0, Printed(11.5), 0, "differs"),
        (math.nan, 1.0, Printed(11.5), -1, "worse"),
    ],
)
def test_verdict(mean, spread, printed, better, said):
    """By the printed spread, else by ours; the sign of the measure decides between better and worse."""
    assert verdict(mean, spread, 10, printed, better) == said


def test_lead_over_the_best_other(tmp_path):
    """Paired over runs, so what all methods of a run share cancels; what is not finite is left out."""
    found = leads(run_experiment(toy.make(), Plan(tmp_path)))
    assert [(lead.setting, lead.column, lead.rival, lead.n) for lead in found] == [
        ("1", "error", "a", 3),
        ("2", "error", "a", 3),
    ]
    assert found[0].mean == pytest.approx(-1.0)
    assert found[0].error == pytest.approx(0.0, abs=1e-9)
    assert found[0].overlap_error is None
    assert "1.00 behind the best other, a (± 0.00 over runs)" in format_lead(found[0], 2)


def test_overlapping_splits_widen_the_error(tmp_path):
    """Nadeau & Bengio 2003: the variance of a mean over n random splits is s^2 (1 / n + test / train)."""

    def noisy(name, role):
        return Method(name, lambda p, c: Outcome({"error": float(c.rng(len(name)).normal())}), role, name)

    methods = (noisy("x", "default"), noisy("xx", "other"))
    more = {
        "methods": methods,
        "paper": {},
        "settings": ("",),
        "test_share": 0.5,
        "columns": (Column("error"),),
    }
    results = run_experiment(toy.make(**more), Plan(tmp_path, n_runs=4))
    (lead,) = leads(results)
    gain = [a.values["error"] - b.values["error"] for a, b in zip(*_by_method(results), strict=True)]
    assert lead.mean == pytest.approx(-np.mean(gain))
    assert lead.error == pytest.approx(np.std(gain, ddof=1) * np.sqrt(1 / 4))
    assert lead.overlap_error == pytest.approx(np.std(gain, ddof=1) * np.sqrt(1 / 4 + 0.5))
    assert "with the overlap of splits" in format_lead(lead, 2)


def _by_method(results):
    return [
        sorted((r for r in results.records if r.method == name), key=lambda r: r.run) for name in ("x", "xx")
    ]


def test_verdict_needs_a_spread():
    """One run against a number without a spread cannot be judged."""
    assert verdict(13.0, math.nan, 1, Printed(11.5), -1) == "no spread"


def test_output(tmp_path):
    """The CSV has every run, the JSON the cells and verdicts, the page both; plots are files."""
    results = run_experiment(toy.make(), Plan(tmp_path))
    page = write_results([results], tmp_path)
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert len(rows) == 18 * 2
    summary = json.loads((tmp_path / "summary.json").read_text())
    found = summary["experiments"][0]
    said = [(c["setting"], c["verdict"], c["default_verdict"]) for c in found["comparisons"]]
    assert said == [("1", "within the spread", "within the spread"), ("2", "worse", "worse")]
    assert len(comparisons(results)) == 2
    assert {"numpy", "gleangp"} <= set(summary["versions"])
    for suffix in ("png", "svg"):
        assert (tmp_path / "plots" / f"toy-curve.{suffix}").stat().st_size > 1000
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "a &lt;toy&gt; &amp; more" in text
    assert "11.50 ± 0.60" in text
    assert text.count('<span class="worse">worse</span>') == 2
    assert "prefers-color-scheme:dark" in text
    fetched = re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", re.sub(r"xmlns[^ >]*", "", text))
    assert [f for f in fetched if "http" in f] == []


def test_bad_declarations():
    """Numbers of the paper that belong nowhere, and names that are used twice, are errors."""
    with pytest.raises(ValueError, match="belongs to no setting, method or column"):
        toy.make(paper={("1", "nobody", "error"): Printed(1.0)})
    with pytest.raises(ValueError, match="two methods of one name"):
        toy.make(methods=(*toy.make().methods, toy.make().methods[0]), paper={})


def test_catalogue():
    """Every file is an experiment of its name; a wrong name gets a hint."""
    names = names_of_experiments()
    for name in names:
        experiment = load_experiment(name)
        assert experiment.name == name
        assert experiment.n_runs >= 1
        if experiment.source == "not in a paper":
            assert experiment.default is not None
            assert not experiment.paper
        else:
            assert experiment.source.split()[0] in ("LP04", "LPJ05", "ZS13", "UQD07", "ZY09")
            assert any(m.role == "paper" for m in experiment.methods)
        assert all(m.settings for m in experiment.methods)
    with pytest.raises(ValueError, match=r"no experiment 'habermann'. Did you mean 'haberman'\?"):
        load_experiment("habermann")
