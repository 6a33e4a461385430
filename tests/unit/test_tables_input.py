"""Columns of a frame as numbers: every kind of cell that people have, and the cells that cannot be used."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from gleangp.data.columns import is_table, to_date
from gleangp.data.tables import ColumnEncoding, count_features, encode_columns, learn_columns
from gleangp.exceptions import InputError, InputWarning

DAY = datetime.date(2024, 1, 31)
NIGHT = datetime.datetime(2024, 2, 1, 12)
GAPS = ["x", "x=(missing)"]  # names of a column of numbers that has some
BERLIN = datetime.timezone(datetime.timedelta(hours=1))


def learnt(cells, make=pd.DataFrame):
    """The encoding of one column, and its numbers."""
    frame = make({"x": cells})
    (column,) = learn_columns(frame)
    return column, encode_columns([column], frame)


@pytest.mark.parametrize(
    ("cells", "kind", "names", "expected"),
    [
        ([1, 2, 3], "number", ["x"], [[1], [2], [3]]),
        ([1.0, np.nan, 3.0], "number", GAPS, [[1, 0], [2, 1], [3, 0]]),
        (pd.array([1, None, 3], dtype="Int64"), "number", GAPS, [[1, 0], [2, 1], [3, 0]]),
        (pd.array([1, None, 3], dtype="int64[pyarrow]"), "number", GAPS, [[1, 0], [2, 1], [3, 0]]),
        ([2**70, 0, 1], "number", ["x"], [[2.0**70], [0], [1]]),
        ([Decimal("0.5"), None, 2], "number", GAPS, [[0.5, 0], [1.25, 1], [2, 0]]),
        ([7, 7, 7], "number", ["x"], [[7], [7], [7]]),
        ([1.5e308, 1.5e308, None], "number", GAPS, [[1.5e308, 0], [1.5e308, 0], [1.5e308, 1]]),
        ([True, False, True], "boolean", ["x"], [[1], [0], [1]]),
        ([True, None, False], "boolean", GAPS, [[1, 0], [0.5, 1], [0, 0]]),
        (pd.array([True, None, True], dtype="boolean"), "boolean", GAPS, [[1, 0], [1, 1], [1, 0]]),
        (["yes", "No", ""], "boolean", GAPS, [[1, 0], [0, 0], [0.5, 1]]),
        (["day", "night", "day"], "category", ["x=day", "x=night"], [[1, 0], [0, 1], [1, 0]]),
        (["é", "日本", None], "category", ["x=é", "x=日本"], [[1, 0], [0, 1], [0, 0]]),
        (["one", "one", "one"], "category", ["x=one"], [[1], [1], [1]]),
        (["01", "02", " "], "category", ["x=01", "x=02"], [[1, 0], [0, 1], [0, 0]]),
        (["<18", "18+", "<18"], "category", ["x=18+", "x=<18"], [[0, 1], [1, 0], [0, 1]]),
        (pd.Categorical([1, 2, None]), "category", ["x=1", "x=2"], [[1, 0], [0, 1], [0, 0]]),
        (pd.Categorical(["0.5", "<0.1", "0.5"]), "category", ["x=0.5", "x=<0.1"], [[1, 0], [0, 1], [1, 0]]),
        (pd.to_datetime(["2024-01-31", None, "2024-02-02"]), "date", GAPS, [[0, 0], [1, 1], [2, 0]]),
        (pd.to_datetime(["2024-01-31"] * 3).tz_localize("Asia/Tokyo"), "date", ["x"], [[0], [0], [0]]),
        ([NIGHT, DAY, DAY], "date", ["x"], [[1.5], [0], [0]]),
        ([NIGHT.replace(tzinfo=BERLIN), NIGHT, NIGHT], "date", ["x"], [[0], [1 / 24], [1 / 24]]),
        (["2024-01-31", "2024-02-01 12:00", "2024-01-31"], "date", ["x"], [[0], [1.5], [0]]),
        (["2024-13-31"] * 3, "category", ["x=2024-13-31"], [[1], [1], [1]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kinds_of_cells(cells, kind, names, expected):
    """What a column is, what it becomes, and which numbers its cells are."""
    column, numbers = learnt(cells)
    assert column.kind == kind
    assert column.feature_names == names
    assert count_features([column]) == len(names)
    assert_array_equal(numbers, expected)
    assert column.n_missing == sum(bool(pd.isna(cell)) or cell in ("", " ") for cell in cells)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([1, None, 3], [[1, 0], [2, 1], [3, 0]]),
        ([True, False, None], [[1, 0], [0, 0], [0.5, 1]]),
        (["a", None, "b"], [[1, 0], [0, 0], [0, 1]]),
        (pl.Series(["v", "u", None], dtype=pl.Categorical), [[0, 1], [1, 0], [0, 0]]),
        (pl.Series(["v", "u", None], dtype=pl.Enum(["u", "v"])), [[0, 1], [1, 0], [0, 0]]),
        ([DAY, None, NIGHT.date()], [[0, 0], [0.5, 1], [1, 0]]),
        ([datetime.datetime(2024, 1, 30), NIGHT, None], [[0, 0], [2.5, 0], [1.25, 1]]),
    ],
    ids=["integers", "booleans", "text", "categorical", "enum", "dates", "times"],
)
def test_polars(cells, expected):
    """Columns of polars become the same numbers as those of pandas."""
    assert_array_equal(learnt(cells, pl.DataFrame)[1], expected)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([[1], [2], [3]], r"'x' has a list in row 0: \[1\]\. Numbers, text, booleans and dates can be used"),
        ([1.0, None, {"a": 1}], r"'x' has a dict in row 2"),
        ([1.0, np.arange(3), 2.0], r"'x' has a ndarray in row 1"),
        ([0.5, 1.0, "<0.1"], r"'x' mixes types: row 2 has '<0.1' \(text\), but most cells are"),
        (["0.5", "<0.1", "3"], r"'x' has '<0.1' in row 1, a bound among numbers\. Replace it by a number"),
        ([None, np.nan, ""], r"'x' is empty: all 3 cells are missing\. Leave it out"),
        ([1.0, np.inf, -np.inf], r"'x' has infinite values, the first in row 1: inf"),
        (pd.Series([1, 2, 10**400], dtype=object), r"'x' has 1000.*\.\.\. in row 2, where a number is"),
        ([1j, 1, 2], r"'x' has a complex in row 0"),
        (pd.to_timedelta([1, 2, 3], unit="D"), r"'x' has a Timedelta in row 0"),
        ([f"name {i}" for i in range(51)], r"'x' is text with 51 different values .* such as 'name 0'"),
    ],
    ids="list dict array mixed bound empty infinite huge complex duration names".split(),
)
def test_unusable_columns(cells, message):
    """The column, its first bad cell and what to do are in the message."""
    with pytest.raises(InputError, match=message):
        learnt(cells)


@pytest.mark.parametrize("cells", [["1.5", "2.5", " ? ", "3", "", "?"], [str(DAY), "", " ? ", str(NIGHT)]])
def test_numbers_among_words(cells):
    """Text of which most values are numbers is categories, with a warning; not if it says that it is."""
    with pytest.warns(
        InputWarning, match=r"'x' has ' \? ' in row 2, and most other values are (numbers|dates)"
    ):
        encoding = learnt(cells)[0]
    assert encoding.kind == "category"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learnt(pd.Series(cells).astype("category"))[0].kind == "category"
        assert learnt(["1", "2", "red", "blue"])[0].kind == learnt(["01", "02", "10"])[0].kind == "category"


def frame_and_columns():
    frame = pd.DataFrame({"n": [1.0, 2.0, 6.0], "kind": ["a", "b", "a"], "on": ["yes", "no", "no"]})
    frame["d"] = pd.to_datetime([DAY] * 3)
    return frame, learn_columns(frame)


def test_unseen_categories():
    """They are none of the known ones, with one warning that has the column and the value."""
    frame, columns = frame_and_columns()
    new = frame.assign(kind=["c", "a", "d"], on=["maybe", "yes", "no"])
    with pytest.warns(
        InputWarning, match=r"'kind' has the value 'c', .*\(2 rows.*'a', 'b'.*'on' has.*'maybe'"
    ) as seen:
        numbers = encode_columns(columns, new)
    assert len(seen) == 1
    assert_array_equal(numbers[:, 1:4], [[0, 0, 1 / 3], [1, 0, 1], [0, 0, 0]])
    with pytest.raises(
        InputError, match=r"'kind' has the value 'c', which the model has not seen. Known: 'a', 'b'"
    ):
        encode_columns(columns, new, strict=True)


def test_gaps_where_there_were_none():
    """They become the mean, with one warning; with gaps in fit there is an indicator and no warning."""
    frame, columns = frame_and_columns()
    new = frame.assign(n=[np.nan, 1.0, 1.0], kind=["a", None, "b"])
    with pytest.warns(
        InputWarning, match=r"'n' has 1 missing values, and had none.*'kind' has 1 missing"
    ) as seen:
        numbers = encode_columns(columns, new)
    assert len(seen) == 1
    assert_array_equal(numbers[:, :3], [[3, 1, 0], [1, 0, 0], [1, 0, 1]])
    assert_array_equal(encode_columns(learn_columns(new), new.assign(n=None))[:, :2], [[1, 1]] * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": [1.0, "<0.1", 2.0]}, r"'n' has '<0.1' in row 1, where a number is expected"),
        ({"n": [1.0, np.inf, 2.0]}, r"'n' has infinite values, the first in row 1"),
        ({"d": ["2024-01-31", "soon", None]}, r"'d' has 'soon' in row 1, where a date is expected"),
        ({"d": [1, 2, 3]}, r"'d' has 1.* in row 0, where a date is expected"),
    ],
    ids=["text", "infinite", "no date", "number"],
)
def test_bad_cells_later(change, message):
    """A cell that is not of the column's kind is named."""
    frame, columns = frame_and_columns()
    with pytest.raises(InputError, match=message):
        encode_columns(columns, frame.assign(**change))


def test_the_same_cells_in_other_types():
    """Text of numbers and dates, integers for booleans and floats for categories are understood later."""
    frame = pd.DataFrame({"n": [1.5, 2.0], "d": [DAY, DAY], "b": [True, False], "c": pd.Categorical([1, 2])})
    columns = learn_columns(frame)
    other = pd.DataFrame({"n": ["1.5", "2"], "d": ["2024-01-31"] * 2, "b": [1, 0], "c": [1.0, 2.0]})
    assert_array_equal(encode_columns(columns, other), encode_columns(columns, frame))
    assert_array_equal(encode_columns(columns, other.to_numpy(dtype=object)), encode_columns(columns, frame))


def test_columns_are_found():
    """By name in another order or among others; by position where a heading is there twice."""
    frame, columns = frame_and_columns()
    expected = encode_columns(columns, frame)
    assert_array_equal(
        encode_columns(columns, frame.assign(more=0)[["d", "more", "on", "kind", "n"]]), expected
    )
    with pytest.raises(InputError, match=r"no column 'kind', .*It has: 'n', 'on', 'd'"):
        encode_columns(columns, frame.drop(columns="kind"))
    with pytest.raises(InputError, match=r"X has 1 features, and 4 are expected: 'n', 'kind', 'on', 'd'"):
        encode_columns(columns, np.zeros((2, 1)))
    twice = pd.DataFrame([[1.0, 5.0], [2.0, 6.0]], columns=["x", "x"])
    assert_array_equal(encode_columns(learn_columns(twice), twice), twice.to_numpy())


def test_columns_in_words():
    """A column is shown with its kind, what it becomes and how many cells are missing."""
    column = ColumnEncoding("kind", "category", ("day", "night"), 0.0, n_missing=3)
    assert str(column) == "kind: category, becomes kind=day, kind=night; 3 missing"


def test_what_is_a_table():
    """Frames are; arrays, lists and series are not."""
    assert is_table(pd.DataFrame({"x": [1]}))
    assert is_table(pl.DataFrame({"x": [1]}))
    assert not any(map(is_table, (np.zeros((1, 1)), [[1]], pd.Series([1]), None)))


@pytest.mark.parametrize(
    "state",
    [
        {"kind": "other"},
        {"n_missing": -1},
        {"kind": "category", "categories": (1,)},
        {"fill": np.inf},
        {"kind": "date", "first": "soon"},
        {"kind": "date"},
    ],
    ids=lambda state: ", ".join(state),
)
def test_damaged_encodings(state):
    """What no table gives is refused when a model file is read."""
    with pytest.raises((TypeError, ValueError)):
        ColumnEncoding(**{"name": "x", "kind": "number", **state})._check_state()


def test_a_time_in_utc_is_a_date():
    """As many exports write it: with the letter Z at the end."""
    expected = np.datetime64("2020-01-02T03:04:05", "us")
    assert to_date("2020-01-02T03:04:05Z") == to_date(" 2020-01-02 03:04:05 ") == expected
    with pytest.raises(ValueError, match="is not a date"):
        to_date("2020-01-02Z")
