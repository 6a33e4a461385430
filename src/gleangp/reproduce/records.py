"""Single results on disk: one file for each, written in one step, named by the hash of its configuration."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gleangp.io import replacing


@dataclass(frozen=True)
class Record:
    """What one method gave in one run of one setting."""

    setting: str
    method: str
    run: int
    values: dict[str, float]
    shown: dict[str, Any]
    seconds: float  # of the clock
    processor_seconds: float
    warnings: list[str]


def key_of(configuration: Mapping[str, Any]) -> str:
    """Hash of everything a result depends on."""
    text = json.dumps(configuration, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write(folder: Path, configuration: Mapping[str, Any], content: Any) -> None:
    """Keep a result; a process that is killed leaves the old file, the new one or none."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{key_of(configuration)}.json") as temporary:
        text = json.dumps({"configuration": configuration, "content": content}, allow_nan=False)
        temporary.write_text(text, encoding="utf-8")


def read(folder: Path, configuration: Mapping[str, Any]) -> Any | None:
    """The result of a configuration, or None; a file that cannot be read counts as absent."""
    path = folder / f"{key_of(configuration)}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))["content"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_all(folder: Path) -> list[Any]:
    """All results of a folder that can be read."""
    out = []
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            out.append(json.loads(path.read_text(encoding="utf-8"))["content"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return out


def to_json(record: Record) -> dict[str, Any]:
    """Plain values; a number that is not finite is None."""
    content = asdict(record)
    content["values"] = {k: v if math.isfinite(v) else None for k, v in record.values.items()}
    return content


def from_json(content: dict[str, Any]) -> Record:
    """What `to_json` took apart."""
    values = {k: math.nan if v is None else v for k, v in content["values"].items()}
    return Record(**{**content, "values": values})
