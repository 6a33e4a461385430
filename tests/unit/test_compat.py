"""Callbacks where scikit-learn has none of its own: the same hooks, in the same order."""

import pytest
from sklearn.base import BaseEstimator, clone

from gleangp import _compat


class Toy(_compat._SupportMixin, BaseEstimator):
    """Fits in one step."""

    _parameter_constraints = {"fails": [bool]}

    def __init__(self, fails=False):
        self.fails = fails

    @_compat._fit_context_with_teardown(prefer_skip_nested_validation=True)
    def fit(self, X):
        """Begin, make one step, end."""
        context = self._init_callback_context(max_subtasks=2)
        context.call_on_fit_task_begin(estimator=self, X=X)
        if self.fails:
            raise ZeroDivisionError
        steps = [context.subcontext("step") for _ in range(2)]
        assert [s.task_id for s in steps] == [0, 1]
        assert all(s.parent is context for s in steps)
        self.stop_ = [s.call_on_fit_task_end(estimator=self, X=X) for s in steps]
        context.call_on_fit_task_end(estimator=self, X=X, reconstruction_attributes=dict)
        return self


class Recorder:
    """Keeps what it is told; asks to stop after the second step."""

    def __init__(self):
        self.seen = []

    def setup(self, estimator, context):
        self.seen.append("setup")

    def on_fit_task_begin(self, estimator, context, *, X, y):
        assert y is None  # Toy has none
        self.seen.append(("begin", context.task_name, X))

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        self.seen.append(("end", context.task_name, fitted_estimator))
        return context.task_id == 1

    def teardown(self, estimator, context):
        assert context.task_name == "fit"
        self.seen.append("teardown")


_BEGUN = ["setup", ("begin", "fit", "data")]
_STEPS = [("end", "step", None)] * 2


def test_hooks_are_called_in_order():
    """Set up, begin, steps, end, torn down; each hook gets what its signature names; two callbacks as one."""
    first, second = Recorder(), Recorder()
    model = Toy().set_callbacks(first, second).fit("data")
    assert first.seen == second.seen == [*_BEGUN, *_STEPS, ("end", "fit", model), "teardown"]
    assert model.stop_ == [False, True]
    assert set(vars(model)) == {"fails", "stop_", _compat.CALLBACKS}


def test_a_failed_fit_is_torn_down():
    """The error is the one of the fit, and nothing of the callbacks at work is left."""
    seen = Recorder()
    model = Toy(fails=True).set_callbacks(seen)
    with pytest.raises(ZeroDivisionError):
        model.fit("data")
    assert seen.seen == [*_BEGUN, "teardown"]
    assert set(vars(model)) == {"fails", _compat.CALLBACKS}


def test_clones_have_the_callbacks():
    """As in scikit-learn 1.9: a clone in a cross-validation reports too; without callbacks it has none."""
    seen = Recorder()
    model = Toy(fails=True).set_callbacks(seen)
    assert _compat.callbacks_of(clone(model)) == [seen]
    assert clone(model).fails
    model.set_callbacks()
    assert _compat.callbacks_of(clone(model)) == _compat.callbacks_of(model) == []


def test_what_is_no_callback():
    """A class or an object without the hooks is refused, with the name of a hook."""
    with pytest.raises(TypeError, match="is a class, not an instance"):
        Toy().set_callbacks(Recorder)
    with pytest.raises(TypeError, match="has no method 'setup'"):
        Toy().set_callbacks(print)


def test_scikit_learns_own_callbacks_are_used_where_they_are():
    """From scikit-learn 1.9 on, ours is not used."""
    callback = pytest.importorskip("sklearn.callback", reason="since scikit-learn 1.9")
    assert _compat.CallbackSupportMixin is callback.CallbackSupportMixin
    assert _compat.fit_context.__module__ == "sklearn.base"
