"""The sparse estimators keep scikit-learn's contract: its own estimator checks, all of them."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from gleangp import CoregionCoupling, EntropySelector, SparseGPClassifier, SparseGPRegressor

VARIANTS = [
    SparseGPRegressor(),
    SparseGPRegressor(n_active=0.5, posterior="active", selector="entropy"),
    SparseGPRegressor(coupling="function"),
    SparseGPRegressor(coupling=CoregionCoupling(rank=2)),
    SparseGPClassifier(),
    SparseGPClassifier(coupling="coregion"),
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


@parametrize_with_checks(VARIANTS, expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator, check):
    """No check fails but those that take weights for numbers of rows."""
    check(estimator)
