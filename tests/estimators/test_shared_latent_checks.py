"""scikit-learn's own checks of the shared-latent-space estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gleangp import SharedLatentGPClassifier, SharedLatentGPRegressor


@parametrize_with_checks([SharedLatentGPRegressor(hidden_units=5, tol=1.0)])
def test_scikit_learn_checks(estimator, check):
    """Every check passes."""
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        SharedLatentGPClassifier(hidden_units=5, tol=1e-1),
        SharedLatentGPRegressor(hidden_units=20, tol=1e-2),
    ]
)
def test_scikit_learn_checks_of_longer_fits(estimator, check):
    """Every check passes."""
    check(estimator)
