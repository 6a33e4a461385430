"""The comparison with other libraries: scores, and one worker from end to end."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from tests.processes import python

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


@pytest.fixture
def score(monkeypatch):
    """The scoring function, imported from where the benchmark has it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from score import score

    return score


def test_regression_scores_are_rmse_to_the_truth_and_nlpd_of_the_targets(score):
    """RMSE is against the function; the density is that of the noisy targets."""
    rng = np.random.default_rng(0)
    truth, mean, var = rng.normal(size=30), rng.normal(size=30), rng.uniform(0.1, 2.0, size=30)
    y = truth + rng.normal(size=30)
    found = score(
        {"kind": "regression", "truth": truth, "y_test": y},
        {"mean": mean, "var": var},
    )
    assert found["error"] == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))
    assert found["nlpd"] == pytest.approx(-np.mean(norm(mean, np.sqrt(var)).logpdf(y)))


def test_classification_scores_are_error_rate_and_log_loss(score):
    """A wrong certainty costs much, but not infinitely much."""
    y, p = np.array([1.0, 0.0, 1.0, 1.0]), np.array([0.9, 0.2, 0.4, 0.0])
    found = score({"kind": "classification", "y_test": y}, {"p": p})
    assert found["error"] == 0.5
    assert found["nlpd"] == pytest.approx(-np.mean(np.log([0.9, 0.8, 0.4, 6e-8])))


@pytest.mark.slow  # two processes of their own
@pytest.mark.parametrize("peer", ["gleangp", "sklearn"])
def test_worker_writes_times_and_predictions(peer, tmp_path):
    """A worker fits the workload it is given; its predictions are better than the mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(160, 2))  # a worker is tested here, not extrapolation
    y = np.sin(X[:, 0])
    arrays = {"kind": "regression", "ard": True, "X": X[:120], "y": y[:120], "X_test": X[120:]}
    np.savez(tmp_path / "workload.npz", **arrays)
    paths = [str(tmp_path / name) for name in ("workload.npz", "results.json", "predictions.npz")]
    source = str(FOLDER.parents[1] / "src")
    subprocess.run(
        [sys.executable, str(FOLDER / f"worker_{peer}.py"), *paths],
        check=True,
        env={"PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1", "PATH": ""},
    )
    results = json.loads(Path(paths[1]).read_text())
    assert results["cpu_s"] > 0.0
    assert results["peak_mb"] >= results["peak_mb_before"] > 0.0
    assert results["settings"]
    assert results["versions"]["scikit-learn"]
    with np.load(paths[2]) as found:
        assert np.sqrt(np.mean((found["mean"] - y[120:]) ** 2)) < 0.1 * y[120:].std()
        assert (found["var"] > 0.0).all()


@pytest.mark.slow
def test_the_command_of_the_documentation_starts(tmp_path):
    """From any folder, without the repository on the path."""
    assert "--workloads" in python(FOLDER / "run.py", "--help", cwd=tmp_path)
