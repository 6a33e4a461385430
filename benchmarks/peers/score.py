"""Accuracy of predictions, the same for all peers."""

from __future__ import annotations

import numpy as np


def score(workload: dict, found: dict) -> dict[str, float]:
    """Error and mean negative log predictive density (nats); of tasks also for those that came later."""
    if str(workload["kind"]) == "classification":
        p, y = found["p"], workload["y_test"]
        p_true = np.where(y > 0.5, p, 1.0 - p)
        # A probability of exactly zero would be an infinite loss: float32 cannot tell it from 6e-8.
        nlpd = -np.mean(np.log(np.maximum(p_true, 6e-8)))
        return {"error": float(np.mean((p > 0.5) != (y > 0.5))), "nlpd": float(nlpd)}
    result = {
        "error": rmse(found["mean"], workload["truth"]),
        "nlpd": gaussian_nlpd(workload["y_test"], found["mean"], found["var"]),
    }
    if "new_mean" in found:
        result["new_error"] = rmse(found["new_mean"], workload["new_truth"])
        result["new_nlpd"] = gaussian_nlpd(workload["y_new_test"], found["new_mean"], found["new_var"])
    return result


def rmse(a, b) -> float:
    """Root mean squared difference."""
    return float(np.sqrt(np.mean((a - b) ** 2)))


def gaussian_nlpd(y, mean, var) -> float:
    """-log N(y | mean, var), averaged over rows."""
    return float(np.mean(0.5 * np.log(2.0 * np.pi * var) + 0.5 * (y - mean) ** 2 / var))
