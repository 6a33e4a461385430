"""The sparse estimators keep scikit-learn's contract: its own estimator checks, all of them."""

import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from gleangp import CoregionCoupling, EntropySelector, SparseGPClassifier, SparseGPRegressor
from tests.estimators.learning_checks import checks_of_what_learns

# The contract is about parameters, input and state. Learning and a basis are left to the slow form; no check
# has tasks, so that a coupling is there as a parameter alone.
FIXED = {"kernel": ConstantKernel(1.0) * RBF(1.0), "optimizer": None}
QUICK = [
    SparseGPRegressor(**FIXED, coupling=CoregionCoupling(rank=2)),
    SparseGPClassifier(**FIXED, coupling="coregion"),
]
ACTIVE = [
    SparseGPRegressor(n_active=0.5, posterior="active", selector="entropy"),
    SparseGPClassifier(n_active=0.1, posterior="active", sites="ep", selector=EntropySelector()),
]


# A row of weight w has the noise of a mean of w rows. The posterior is that of w equal rows, but equal rows
# would also show that there is no noise between them, so what is learnt differs.
MEANING = {
    "check_sample_weight_equivalence_on_dense_data": "weights divide the noise; they do not repeat rows"
}


WITHOUT_WEIGHTS = {
    name: "the method of LPJ05 has no weights, which is an error"
    for name in ("check_sample_weights_list", "check_sample_weights_not_overwritten")
}


def expected_failures(estimator):
    """Checks that ask for another meaning of weights, or for weights where there are none."""
    if not isinstance(estimator, SparseGPRegressor):
        return {}
    return MEANING if estimator.posterior == "local" else {**MEANING, **WITHOUT_WEIGHTS}


@parametrize_with_checks(QUICK, expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator, check):
    """No check fails but those that take weights for numbers of rows."""
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(ACTIVE, expected_failed_checks=expected_failures)
def test_scikit_learn_check_of_active_points(estimator, check):
    """Nor does one of few points chosen by entropy, with a kernel that is learnt."""
    check(estimator)


@pytest.mark.slow
@checks_of_what_learns(SparseGPRegressor(), SparseGPClassifier())
def test_scikit_learn_check_of_what_learns(estimator, check):
    """Nor does one of the defaults."""
    check(estimator)
