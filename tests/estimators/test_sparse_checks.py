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


@parametrize_with_checks(VARIANTS)
def test_scikit_learn_check(estimator, check):
    """No check fails, and none is declared as an expected failure."""
    check(estimator)
