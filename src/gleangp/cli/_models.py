"""The models of the command line and their simple rivals, all with the same `fit` and `predict`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from gleangp import (
    HierarchicalGPRegressor,
    SharedLatentGPClassifier,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
)
from gleangp.cli._counts import CountMixedModel, WithFields, looks_like_counts
from gleangp.cli._mixed_model import MixedModel
from gleangp.cli._problem import COUNTS, Problem
from gleangp.cli._usage import note
from gleangp.data.tables import count_features, encode_columns
from gleangp.report.rivals import PerTask, Pooled, TaskAverage

# Name on the command line -> for numbers, for classes.
_ESTIMATORS: dict[str, tuple[Any, Any]] = {
    "sparse": (SparseGPRegressor, SparseGPClassifier),
    "coupled": (SparseGPRegressor, SparseGPClassifier),
    "hierarchical": (HierarchicalGPRegressor, None),
    "latent": (SharedLatentGPRegressor, SharedLatentGPClassifier),
    "ordinal": (None, SparseGPOrdinal),
}
# Those for which rows without a target are worth something: graph, latent positions, null category.
_UNLABELED = {("hierarchical", False), ("latent", False), ("latent", True), ("sparse", True)}


class OnNumbers(BaseEstimator):
    """A model of numbers that is given frames, of which `columns` says what becomes of them."""

    def __init__(self, estimator: Any, columns: Any) -> None:
        self.estimator = estimator
        self.columns = columns

    def fit(self, X: Any, y: Any, tasks: Any = None) -> OnNumbers:
        """Fit to numbers."""
        given = {} if tasks is None else {"tasks": tasks}
        self.estimator_ = clone(self.estimator).fit(self._numbers(X), y, **given)
        return self

    def predict(self, X: Any, tasks: Any = None) -> Any:
        """Predict from numbers."""
        return self.estimator_.predict(self._numbers(X), **({} if tasks is None else {"tasks": tasks}))

    def _numbers(self, X: Any) -> Any:
        """A column that is not there is missing in every row."""
        return encode_columns(self.columns, X.reindex(columns=[column.name for column in self.columns]))


class WithTaskColumn(BaseEstimator):
    """A common scikit-learn model that gets the task as one more column: categories or one-hot."""

    def __init__(self, estimator: Any, one_hot: bool) -> None:
        self.estimator = estimator
        self.one_hot = one_hot

    def fit(self, X: Any, y: Any, tasks: Any = None) -> WithTaskColumn:
        """Fit with the task as the last column."""
        self.estimator_ = self._pipeline(X.shape[1], tasks).fit(self._table(X, tasks), y)
        return self

    def predict(self, X: Any, tasks: Any = None) -> Any:
        """Predict with the task as the last column."""
        return self.estimator_.predict(self._table(X, tasks))

    def _pipeline(self, p: int, tasks: Any) -> Any:
        if tasks is None:
            return make_pipeline(StandardScaler(), clone(self.estimator))
        encoder: Any = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
        if not self.one_hot:  # trees: a code, which they may take as a category
            encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        columns = [("x", StandardScaler(), list(range(p))), ("task", encoder, [p])]
        return make_pipeline(ColumnTransformer(columns), clone(self.estimator))

    @staticmethod
    def _table(X: Any, tasks: Any) -> Any:
        return X if tasks is None else np.column_stack([X.astype(object), np.asarray(tasks, dtype=object)])


def sharing_model(
    problem: Problem, *, seed: int, noise: str | None = None, name: str = "sparse", **options: Any
) -> Any:
    """gleangp's model of all tasks, with the noise that was asked for unless another is named."""
    model = named_model(name, problem.classify, seed=seed, noise=noise or problem.noise, **options)
    return with_fields(model, problem)


def with_fields(estimator: Any, problem: Problem) -> Any:
    """The estimator, given exposure and trials if the problem has them."""
    fields = problem.encoding.fields
    return WithFields(estimator, fields) if fields else estimator


def learns_from_unlabeled(name: str, classify: bool) -> bool:
    """Whether a model has a use for rows without a target."""
    return (name, classify) in _UNLABELED


def named_model(name: str, classify: bool, **options: Any) -> Any:
    """An estimator by its name on the command line; options that are None are left to it."""
    if name not in _ESTIMATORS:
        raise ValueError(f"--model {name!r} is not known; use one of {', '.join(_ESTIMATORS)}.")
    cls = _ESTIMATORS[name][classify]
    if cls is None and classify:
        raise ValueError(
            f"--model {name} is for numbers, and the target holds classes. Use --model sparse, or "
            "--regression if the classes are numbers."
        )
    if cls is None:
        raise ValueError(f"--model {name} is for categories, and the target holds numbers: add --classify.")
    if name == "coupled":
        options["coupling"] = "function"
    given = {"random_state": options.pop("seed"), **{k: v for k, v in options.items() if v is not None}}
    unknown = sorted(set(given) - set(cls().get_params()))
    if unknown:
        raise ValueError(f"--model {name} has no use for {unknown[0]!r}. Leave that option out.")
    return cls(**given)


_MOST_CELLS = 5_000_000  # of the table of a linear model, with a column for each task
_MOST_ROWS_OF_OWN_MODELS = 20_000  # up to which a comparison fits every task alone
_MOST_ROWS_OF_OWN_KERNELS = 2000  # up to which a comparison tries a kernel for every task


def our_models(problem: Problem, *, seed: int) -> dict[str, tuple[Any, Problem]]:
    """gleangp's models for a problem, simplest first, and the rows that each is given."""
    classify, labeled = problem.classify, problem.labeled_only()
    with_tasks = problem.tasks is not None
    noise = "" if problem.noise is None else f" --noise {problem.noise}"
    first = f"gleangp --model sparse{noise}" + (": tasks share what helps" if with_tasks else "")
    found = {first: (sharing_model(problem, seed=seed), labeled)}
    if problem.noise is None and looks_like_counts(labeled.y):
        counts = sharing_model(problem, seed=seed, noise="negative_binomial")
        found["gleangp --noise negative_binomial: counts"] = (counts, labeled)
    if with_tasks and problem.n_tasks > 1:
        coupled = sharing_model(problem, seed=seed, name="coupled")
        found[f"gleangp --model coupled{noise}: a common function"] = (coupled, labeled)
        if not classify and not noise and len(labeled.y) <= _MOST_ROWS_OF_OWN_KERNELS:
            own = named_model("hierarchical", False, seed=seed)
            found["gleangp --model hierarchical: own kernels"] = (own, problem)
    order = numbers_in_order(labeled.y) if classify else None
    if order is not None:
        found["gleangp --model ordinal: ordered categories"] = (
            named_model("ordinal", True, seed=seed, categories=order),
            labeled,
        )
    if classify and not problem.labeled.all():
        null = sharing_model(problem, seed=seed).set_params(unlabeled=problem.unlabeled)
        found["gleangp --model sparse, unlabelled rows too"] = (null, problem)
    return found


def numbers_in_order(y: np.ndarray) -> list[str] | None:
    """Three or more classes that are numbers, by size; None of other classes."""
    classes = np.unique(y).tolist()
    try:
        return sorted(classes, key=float) if len(classes) > 2 else None
    except ValueError:
        return None


def rivals(problem: Problem, *, seed: int) -> dict[str, Any]:
    """What to compare with, simplest first."""
    classify, with_tasks = problem.classify, problem.tasks is not None
    boosting: Any = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    found = simple_baselines(problem)
    if with_tasks and not classify:
        found["linear mixed model: splines, random slopes"] = OnNumbers(MixedModel(), problem.columns)
    if not classify and (problem.noise in COUNTS or (problem.noise is None and looks_like_counts(problem.y))):
        kind = "mixed model: splines, random intercept" if with_tasks else "regression: splines"
        exposure = "exposure" in problem.encoding.fields
        found[f"Poisson {kind}"] = OnNumbers(CountMixedModel(False, exposure), problem.columns)
        found[f"negative-binomial {kind}"] = OnNumbers(CountMixedModel(True, exposure), problem.columns)
    # One of the 255 bins that the trees have at most is for missing values.
    n_inputs = count_features(problem.columns)
    category = {"categorical_features": [n_inputs]} if with_tasks and problem.n_tasks < 255 else {}
    name = "boosted trees" + (", task as category" if category else ", task as input" if with_tasks else "")
    boosted = WithTaskColumn(boosting(random_state=seed, **category), False)
    found[name] = OnNumbers(boosted, problem.columns)
    if with_tasks:
        gp = sharing_model(problem, seed=seed)
        found["GP of all rows, tasks ignored"] = Pooled(gp)
        if len(problem.y) <= _MOST_ROWS_OF_OWN_MODELS:
            found["GP for each task alone"] = PerTask(gp)
        else:
            note(f"GP for each task alone: left out with more than {_MOST_ROWS_OF_OWN_MODELS} rows.")
    return found


def simple_baselines(problem: Problem) -> dict[str, Any]:
    """The average, and a linear model with an offset for each task unless that takes too much memory."""
    with_tasks = problem.tasks is not None
    average = "most frequent class" if problem.classify else "mean"
    found: dict[str, Any] = {average: Pooled(TaskAverage(problem.classify))}
    if with_tasks:
        found = {
            f"{average} of all rows": found[average],
            f"{average} of the task": TaskAverage(problem.classify),
        }
    if len(problem.y) * (count_features(problem.columns) + problem.n_tasks) <= _MOST_CELLS:
        linear = LogisticRegression(max_iter=2000) if problem.classify else RidgeCV(np.logspace(-3, 3, 13))
        name = "linear model" + (" + task offset" if with_tasks else "")
        found[name] = OnNumbers(WithTaskColumn(linear, True), problem.columns)
    return found
