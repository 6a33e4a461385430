"""scikit-learn's checks for estimators that learn: those whose answer depends on what was learnt.

All checks are asked of each estimator with its kernel held, or with next to no learning. Most are about
parameters and the form of the input, which come before learning or go the same way.
"""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

LEARNT = {
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_train",
    "check_decision_proba_consistency",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_regressors_int",
    "check_regressors_train",
}


def name_of(check):
    """The function of a check, whatever of its arguments is set."""
    return check.func.__name__


def checks_of_what_learns(*estimators):
    """A test for each of these checks and estimators; of variants of a check, the first."""
    found = {}
    for estimator in estimators:
        for fresh, check in estimator_checks_generator(estimator):
            found.setdefault((name_of(check), repr(estimator)), (fresh, check))
    asked = {names: pair for names, pair in found.items() if names[0] in LEARNT}
    return pytest.mark.parametrize(("estimator", "check"), asked.values(), ids=map("-".join, asked))
