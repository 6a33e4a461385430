"""User labels become signs, codes and masks, and nothing is guessed."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import DataConversionWarning

from gleangp.data.labels import (
    check_class_target,
    check_regression_target,
    encode_classes,
    lookup_classes,
    split_unlabeled,
)
from gleangp.exceptions import LabelError


@pytest.mark.parametrize(
    "y",
    [
        [1, None, 3],
        np.array([1.0, np.nan, 3.0]),
        np.array([1, None, 3], dtype=object),
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series([1.0, None, 3.0]),
        pl.Series([1, None, 3]),
        [np.float32(1), float("nan"), 3],
        np.array([1, pd.NA, 3.0], dtype=object),
    ],
)
def test_regression_target(y):
    """NaN, None and NA are unlabeled rows in any container; the rest is float64."""
    target = check_regression_target(y, 3)
    assert target.dtype == np.float64
    assert_array_equal(target, [1.0, np.nan, 3.0])


def test_regression_target_is_a_copy():
    """The user's array is never written to or shared."""
    y = np.arange(3.0)
    target = check_regression_target(y, 3)
    assert not np.shares_memory(y, target)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, r"requires y to be passed, but the target y is None"),
        ([np.nan] * 3, r"y is NaN in all rows"),
        ([None] * 3, r"y is NaN in all rows"),
        ([1.0, np.inf, 2.0], r"y contains infinity \(inf\)"),
        ([1.0, 2.0], r"y has 2 entries, but X has 3 rows"),
        (np.ones((3, 2)), r"shape \(3, 2\).*stack_outputs"),
        (["a", "b", "c"], r"y has strings, such as 'a'"),
        ([1.0, "b", 2.0], r"y mixes types"),
        (np.array([1j, 0, 0]), r"Complex data not supported"),
        ([object()] * 3, r"values of type object"),
    ],
)
def test_regression_target_errors(y, message):
    """Targets that cannot be learnt from are refused with their reason."""
    with pytest.raises(LabelError, match=message):
        check_regression_target(y, 3)


def test_column_vector_warns_as_in_scikit_learn():
    """A single column is taken, with scikit-learn's warning."""
    with pytest.warns(DataConversionWarning):
        target = check_regression_target(np.ones((3, 1)), 3)
    assert target.shape == (3,)
    with pytest.warns(DataConversionWarning):
        assert check_class_target(np.ones((3, 1)), 3).shape == (3,)


@pytest.mark.parametrize(
    ("y", "unlabeled", "labeled"),
    [
        ([1, 0, -1], -1, [1, 1, 0]),
        ([1, 1, -1], None, [1, 1, 1]),
        (["a", "?", "b"], "?", [1, 0, 1]),
        (np.array(["a", "?", "b"]), "?", [1, 0, 1]),
        (["a", -1, "b"], -1, [1, 0, 1]),
        (np.array(["a", -1, None], dtype=object), -1, [1, 0, 0]),
        (["a", None, "b"], np.nan, [1, 0, 1]),
        ([0.0, np.nan, -1.0], -1, [1, 0, 0]),
        ([0.0, np.nan, -1.0], np.nan, [1, 0, 1]),
        (pd.Series(["a", None, "?"]), "?", [1, 0, 0]),
        (pd.Series([1, None, 2], dtype="Int64"), np.nan, [1, 0, 1]),
        (pd.Series([True, None, False], dtype="boolean"), np.nan, [1, 0, 1]),
        (pl.Series(["a", None, "b"]), "?", [1, 0, 1]),
        (np.array([True, False, True]), False, [1, 0, 1]),
    ],
)
def test_split_unlabeled(y, unlabeled, labeled):
    """Rows that carry the label, or no entry at all, are unlabeled; with None all are labeled."""
    assert_array_equal(split_unlabeled(y, unlabeled), np.array(labeled, dtype=bool))


@pytest.mark.parametrize(
    ("y", "unlabeled", "message"),
    [
        (np.array(["a", "b"]), -1, r"unlabeled=-1 can equal no label: the labels are strings"),
        (np.array([0, 1]), "?", r"unlabeled='\?' can equal no label: the labels are numbers"),
        (np.array([True, False]), -1, r"the labels are booleans"),
        (["a", None], None, r"1 missing entries.*row 1.*unlabeled=np.nan"),
        ([0.0, np.nan], None, r"1 missing entries"),
    ],
)
def test_split_unlabeled_errors(y, unlabeled, message):
    """A label that cannot occur, or a missing entry without a meaning, is an error."""
    with pytest.raises(LabelError, match=message):
        split_unlabeled(y, unlabeled)


@pytest.mark.parametrize(
    ("y", "classes", "codes"),
    [
        (["b", "a", -1, "b"], ["a", "b"], [1, 0, -1, 1]),
        ([3, 1, -1, 3], [1, 3], [1, 0, -1, 1]),
        (np.array([3, 1, None, 3], dtype=object), [1, 3], [1, 0, -1, 1]),
        (pd.Series(["b", "a", None, "b"], dtype="category"), ["a", "b"], [1, 0, -1, 1]),
    ],
)
def test_encode_classes(y, classes, codes):
    """Classes are sorted and of one plain type; unlabeled rows have the code -1."""
    found, found_codes = encode_classes(y, len(y), -1)
    assert found.tolist() == classes
    assert found.dtype.kind in "Ui"
    assert found_codes.tolist() == codes


def test_one_class_message():
    """What is wrong with the value, what was expected, what to do."""
    y = ["a", -1, "a"]
    with pytest.raises(LabelError) as caught:
        encode_classes(y, 3, -1)
    assert str(caught.value) == (
        "y has 1 class after removing unlabeled rows (unlabeled=-1): ['a']. Two are needed. "
        "If -1 is one of your classes, leave unlabeled=None."
    )
    with pytest.raises(LabelError, match=r"^y has 1 class: \['a'\]. Two are needed.$"):
        encode_classes(["a", "a"], 2)
    with pytest.raises(LabelError, match=r"no class after removing unlabeled rows"):
        encode_classes([-1, -1], 2, -1)


def test_encode_classes_errors():
    """Continuous, infinite and mixed labels are not classes."""
    with pytest.raises(ValueError, match="Unknown label type"):
        encode_classes([0.1, 0.2, 0.3], 3)
    with pytest.raises(LabelError, match="infinity"):
        encode_classes([0.0, np.inf, 1.0], 3)
    with pytest.raises(LabelError, match=r"mixes types: .*'a'"):
        encode_classes(["a", 1, "b"], 3)


@pytest.mark.parametrize("classes", [[-1, 1, 4], ["a", "b", "c"], ["low", "mid", "high"], [3, 1, 2]])
@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_lookup_classes(classes, kind):
    """Codes of known classes, in whatever order these are; -1 without a label."""
    y = kind([classes[i] for i in (2, 0, 1, 1)])
    assert lookup_classes(np.array(classes), y, 4).tolist() == [2, 0, 1, 1]
    assert lookup_classes(np.array(classes), y, 4, unlabeled=classes[1]).tolist() == [2, 0, -1, -1]
    assert lookup_classes(np.array(classes), None, 0).tolist() == []


def test_lookup_of_unknown_classes():
    """The message has the unknown labels and the known ones; rows without a label have none."""
    classes = np.array(["high", "low"])
    with pytest.raises(LabelError, match=r"did not see: \['mid'\]. Known classes: \['high', 'low'\]"):
        lookup_classes(classes, ["low", "mid"], 2)
    assert lookup_classes(classes, ["low", "mid"], 2, unlabeled="mid").tolist() == [1, -1]
