"""The results as Markdown and as a plot."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from workloads import TITLES, WORKLOADS

LABELS = {"sklearn": "scikit-learn", "gpy": "GPy", "gpflow": "GPflow", "gpytorch": "GPyTorch"}


def machine() -> str:
    """Processor, cores and system, in a line."""
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def table(everything: dict) -> str:
    """One table per workload, versions and settings below."""
    text = [f"Machine: {everything['machine']}. One thread each.", ""]
    workloads = everything["workloads"]
    for name in sorted(workloads, key=list(WORKLOADS).index):
        text += [f"### {TITLES[name]}", "", *_rows(workloads[name]), ""]
    text += ["### Settings", ""]
    settings = {}
    for peers in workloads.values():
        for peer, numbers in peers.items():
            if "failed" not in numbers:
                versions = ", ".join(f"{k} {v}" for k, v in numbers["versions"].items())
                settings[f"* {LABELS.get(peer, peer)} ({versions}): {numbers['settings']}."] = None
    return "\n".join([*text, *sorted(settings, key=str.lower), ""])


def _rows(peers: dict) -> list[str]:
    ours = peers.get("gleangp", {}).get("cpu_s")
    tasks = any("new_error" in numbers for numbers in peers.values())
    header = ["library", "CPU s", "ratio", "wall s", "peak MB (fit)", "error", "NLPD"]
    header += ["new tasks: error", "NLPD", "ms"] if tasks else []
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for peer, numbers in peers.items():
        label = LABELS.get(peer, peer)
        if "failed" in numbers:
            lines.append(f"| {label} | {numbers['failed']} |" + " |" * (len(header) - 2))
            continue
        ratio = f"{numbers['cpu_s'] / ours:.1f}" if ours else ""
        cells = [label, f"{numbers['cpu_s']:.3g}", ratio, f"{numbers['wall_s']:.3g}"]
        cells += [f"{numbers['peak_mb']:.0f} ({numbers['peak_mb'] - numbers['peak_mb_before']:.0f})"]
        cells += [f"{numbers['error']:.4f}", f"{numbers['nlpd']:.3f}"]
        if tasks:
            new = [f"{numbers[k]:.3f}" if k in numbers else "" for k in ("new_error", "new_nlpd")]
            cells += [*new, f"{numbers['add_task_ms']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def plot(everything: dict, path: Path) -> None:
    """Accuracy against CPU seconds, a row per workload: down and to the left is better."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sorted(everything["workloads"], key=list(WORKLOADS).index)
    figure, axes = plt.subplots(len(names), 2, figsize=(8.0, 2.6 * len(names)), squeeze=False)
    for line, name in enumerate(names):
        for column, measure in enumerate(("error", "nlpd")):
            ax = axes[line, column]
            for peer, numbers in everything["workloads"][name].items():
                if "failed" in numbers:
                    continue
                marker = "*" if peer == "gleangp" else "o"
                color = f"C{list(LABELS).index(peer)}" if peer in LABELS else "black"
                size = 11 if marker == "*" else 7
                ax.plot(numbers["cpu_s"], numbers[measure], marker, markersize=size, color=color)
                ax.annotate(LABELS.get(peer, peer), (numbers["cpu_s"], numbers[measure]), fontsize=7,
                            xytext=(4, 4), textcoords="offset points")  # fmt: skip
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter("")
            ax.margins(0.25)
            ax.set_xlabel("CPU seconds")
            ax.set_title(f"{name}: {'NLPD' if measure == 'nlpd' else 'error'}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
