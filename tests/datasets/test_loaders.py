"""The loaders on the real files, and what they do where files are missing."""

import sys
from pathlib import Path

import numpy as np
import pytest

from gleangp import datasets
from gleangp.datasets._known import FILES
from gleangp.datasets._tables import fingerprint, read_table, write_table
from gleangp.exceptions import DatasetError

# loader, shape of the data, of the target, sum of the target or count of the first class, tasks
LOADERS = {
    "load_haberman": ((306, 3), (306,), 225, None),
    "load_iris": ((150, 4), (150,), 50, None),
    "load_auto_mpg": ((392, 7), (392,), None, None),
    "load_crescent": ((400, 2), (400,), 13, None),
    "load_landmine": ((9674, 9), (9674,), 9674 - 585, 19),
    "load_school": ((15362, 28), (15362,), None, 139),
    "load_sarcos": ((4449, 21), (4449, 7), None, None),
    "load_slump": ((103, 7), (103, 3), None, None),
    "load_vowels": ((990, 10), (990,), 90, 15),
    "load_usps": ((9298, 256), (9298,), 1194 + 359, None),
    "load_kin40k": ((40000, 8), (40000,), None, None),
    "load_protein": ((45730, 9), (45730,), None, None),
}


def by_size(names):
    """Parameters of a test; large sets are slow."""
    large = ("protein", "kin40k", "usps", "landmine", "school", "sarcos")
    return [
        pytest.param(n, marks=pytest.mark.slow if any(part in n for part in large) else ()) for n in names
    ]


def test_every_loader_is_tested():
    """The table above names all loaders."""
    assert set(LOADERS) == {name for name in datasets.__all__ if name.startswith("load_")}


@pytest.mark.realdata
@pytest.mark.parametrize("name", by_size(LOADERS))
def test_arrays(name):
    """Shapes, class counts and tasks are those of the published sets; all values are finite."""
    shape, target_shape, count, n_tasks = LOADERS[name]
    found = getattr(datasets, name)()
    assert found.data.shape == shape
    assert found.data.dtype == np.float64
    assert np.isfinite(found.data).all()
    assert found.target.shape == target_shape
    if count is not None:
        assert np.sum(found.target == np.unique(found.target)[0]) == count
    assert (found.tasks is None) == (n_tasks is None)
    if n_tasks is not None:
        assert len(np.unique(found.tasks)) == n_tasks
    assert len(found.feature_names) == shape[1]
    assert "19" in found.DESCR or "20" in found.DESCR  # a year of the citation
    pair = getattr(datasets, name)(return_X_y=True)
    assert len(pair) == (2 if n_tasks is None else 3)
    np.testing.assert_array_equal(pair[0], found.data)


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["load_haberman", "load_landmine", "load_slump", "load_school"])
def test_frames(name):
    """With as_frame the numbers are the same and the frame has tasks, inputs and targets."""
    pytest.importorskip("pandas")
    found, plain = getattr(datasets, name)(as_frame=True), getattr(datasets, name)()
    np.testing.assert_array_equal(found.target.to_numpy(), plain.target)
    n_targets = 1 if plain.target.ndim == 1 else plain.target.shape[1]
    columns = (plain.tasks is not None) + found.data.shape[1] + n_targets
    assert found.frame.shape == (len(plain.target), columns)
    if name == "load_school":
        assert list(found.data["gender"].unique()) == ["male", "female"]
        girls = plain.feature_names.index("gender=female")
        np.testing.assert_array_equal(found.data["gender"] == "female", plain.data[:, girls] == 1)
    else:
        np.testing.assert_array_equal(found.data.to_numpy(), plain.data)


@pytest.mark.realdata
def test_incomplete_cars_and_all_minefields():
    """Six cars have no horsepower; there are 29 minefields."""
    cars = datasets.load_auto_mpg(complete=False)
    assert np.isnan(cars.data).sum() == 6
    assert len(np.unique(datasets.load_landmine(all_tasks=True).tasks)) == 29


@pytest.mark.realdata
def test_two_scalings_of_digits():
    """The smooth grey levels are other numbers of the same images."""
    hard, smooth = (datasets.load_usps(scaling=s).data[:200] for s in ("saturated", "smooth"))
    assert 0.9 < np.corrcoef(hard.ravel(), smooth.ravel())[0, 1] < 0.99
    assert smooth.min() == -1.0
    with pytest.raises(DatasetError, match="scaling='other' is not known"):
        datasets.load_usps(scaling="other")


@pytest.mark.realdata
@pytest.mark.parametrize("path", by_size(p for p, f in FILES.items() if f.checked))
def test_content_is_what_is_expected(path, real_data, tmp_path):
    """The fingerprint holds for the file, for a rewritten copy of it, and for no other number."""
    file = FILES[path]
    table = read_table(real_data / path)
    assert fingerprint(table, file.checked) == file.content
    copy = tmp_path / "copy"
    write_table(table, copy, suffix=Path(path).suffix)
    again = read_table(copy)
    assert fingerprint(again, file.checked) == file.content
    changed = again[file.checked[-1]].copy()
    changed[-1] = changed[0] if changed.dtype.kind == "U" else changed[-1] + 1
    if changed[-1] != again[file.checked[-1]][-1]:
        assert fingerprint({**again, file.checked[-1]: changed}, file.checked) != file.content


def test_missing_file_says_where_to_put_it(monkeypatch, tmp_path):
    """Without file and network the error names the file, both places, and the variable."""
    monkeypatch.setenv("GLEANGP_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("GLEANGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GLEANGP_DATA_URL", "http://127.0.0.1:9")  # nobody listens
    with pytest.raises(DatasetError) as caught:
        datasets.load_landmine()
    message = str(caught.value)
    assert "'landmine/landmine.csv.gz'" in message
    assert str(tmp_path / "mine" / "landmine") in message
    assert str(tmp_path / "cache" / "landmine") in message
    assert "GLEANGP_DATA" in message
    assert isinstance(caught.value, OSError)


def test_no_public_address(monkeypatch, tmp_path):
    """A set without a known address says so."""
    monkeypatch.delenv("GLEANGP_DATA", raising=False)
    monkeypatch.delenv("GLEANGP_DATA_URL", raising=False)
    monkeypatch.setenv("GLEANGP_CACHE", str(tmp_path))
    with pytest.raises(DatasetError, match="no public address of it is known"):
        datasets.load_kin40k()


@pytest.mark.realdata
def test_folder_comes_before_cache(real_data, monkeypatch, tmp_path):
    """GLEANGP_DATA wins over the cache and is not checked; without it the cache is read."""
    mine, cached = (tmp_path / place / "haberman" / "haberman.csv" for place in ("mine", "cache"))
    for path in (mine, cached):
        path.parent.mkdir(parents=True)
    mine.write_text("age,operation_year,positive_nodes,survival_status\n1,2,3,1\n")
    table = read_table(real_data / "haberman" / "haberman.csv")
    write_table(table, cached, suffix=".csv")  # as after a conversion
    monkeypatch.setenv("GLEANGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GLEANGP_DATA", str(tmp_path / "mine"))
    np.testing.assert_array_equal(datasets.load_haberman().data, [[1.0, 2.0, 3.0]])
    monkeypatch.delenv("GLEANGP_DATA")
    assert len(datasets.load_haberman().target) == 306


@pytest.mark.skipif(sys.platform == "win32", reason="XDG is for Unix")
def test_cache_folder(monkeypatch, tmp_path):
    """GLEANGP_CACHE, or `gleangp` in the user's cache folder."""
    monkeypatch.setenv("GLEANGP_CACHE", "~/here")
    assert datasets.cache_folder() == Path.home() / "here"
    monkeypatch.delenv("GLEANGP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert datasets.cache_folder().name == "gleangp"
