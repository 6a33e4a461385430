"""scikit-learn's own checks of the shared-latent-space estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gleangp import SharedLatentGPClassifier, SharedLatentGPRegressor
from tests.estimators.learning_checks import checks_of_what_learns


@parametrize_with_checks([SharedLatentGPRegressor(hidden_units=5, tol=1.0)])
def test_scikit_learn_checks(estimator, check):
    """Every check passes."""
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([SharedLatentGPClassifier(hidden_units=5, tol=1e-1)])
def test_scikit_learn_checks_of_classes(estimator, check):
    """Every check passes."""
    check(estimator)


@pytest.mark.slow
@checks_of_what_learns(SharedLatentGPRegressor(hidden_units=20, tol=1e-2))
def test_scikit_learn_checks_of_longer_fits(estimator, check):
    """Checks that depend on what was learnt pass."""
    check(estimator)
