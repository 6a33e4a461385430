"""Lawrence, Platt & Jordan 2005: the crescents (Figure 5) and USPS with few labels and with virtual vectors.

Tables 1 to 3 of the paper and its toy problem, with simple strong methods on the same splits. Run from the
project's folder::

    python reproductions/lpj05_tables.py --quick            # crescents only, three seeds: a minute
    python reproductions/lpj05_tables.py crescents          # ten seeds
    python reproductions/lpj05_tables.py figure5            # the authors' points, a picture in --work
    python reproductions/lpj05_tables.py kernels given learnt virtual   # USPS, in this order

USPS is read from the folder GLEANGP_DATA (usps/usps.npz). Kernels learnt on all labels are kept in
the folder given by `--work`, for "given" and "virtual".
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, DotProduct
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from gleangp import SparseGPClassifier, translations

DATA = Path(os.environ.get("GLEANGP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def crescents(n, rng):
    """Two interlocking crescents, with the class (-1 or +1) of every row."""
    side = rng.choice([-1, 1], size=n)
    angle, radius = rng.uniform(0, np.pi, n), 5 + 0.7 * rng.standard_normal(n)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]) * side[:, None]
    return X + side[:, None] * [2.5, -1.0], side


def draw(seed, per_class=None):
    """400 rows; each labelled with probability 0.1, or a number of labels a class."""
    rng = np.random.default_rng(seed)
    X, side = crescents(400, rng)
    labelled = rng.random(400) < 0.1
    if per_class:
        labelled[:] = False
        for c in (-1, 1):
            labelled[rng.choice(np.flatnonzero(side == c), per_class, replace=False)] = True
    return X, np.where(labelled, side, 0), side


def semi_supervised_baselines(X, y, X_new):
    """Predictions of scikit-learn's methods; labels are 0, 1, ... and -1 for none."""
    return {
        "LabelSpreading": LabelSpreading(kernel="knn", n_neighbors=7, max_iter=200).fit(X, y).predict(X_new),
        "SelfTraining(SVC)": SelfTrainingClassifier(SVC(probability=True, C=10.0)).fit(X, y).predict(X_new),
    }


def run_crescents(n_seeds):
    """Errors on all rows, of the library's classifier and of others, over seeds."""
    for name, per_class in (("each row labelled with probability 0.1", None), ("4 labels a class", 4)):
        errors: dict[str, list[float]] = {}
        for seed in range(n_seeds):
            X, y, side = draw(seed, per_class)
            has = y != 0
            predicted = {
                "labelled rows only": SparseGPClassifier(random_state=0).fit(X[has], y[has]).predict(X),
                "null category": SparseGPClassifier(unlabeled=0, random_state=0).fit(X, y).predict(X),
                "null category, active": SparseGPClassifier(
                    unlabeled=0, posterior="active", n_active=100, random_state=0
                )
                .fit(X, y)
                .predict(X),
            }
            Z = (X - X.mean(axis=0)) / X.std(axis=0)
            codes = np.where(has, (y > 0).astype(int), -1)
            for method, found in semi_supervised_baselines(Z, codes, Z).items():
                predicted[method] = 2 * found - 1
            for method, found in predicted.items():
                errors.setdefault(method, []).append(100.0 * np.mean(found != side))
        print(f"\ncrescents, {name}, {n_seeds} seeds: error in %, mean (s.d.) and each")
        for method, values in errors.items():
            each = " ".join(f"{v:.1f}" for v in values)
            print(f"  {method:24s} {np.mean(values):6.2f} ({np.std(values):.2f})   {each}", flush=True)


def usps():
    """Images in the scaling of the authors' toolbox, and digits."""
    with np.load(DATA / "usps" / "usps.npz") as d:
        images = [d[name] / 127.5 - 1.0 for name in ("X_train_smooth", "X_test_smooth")]
        return images[0], d["y_train"].astype(int), images[1], d["y_test"].astype(int)


def usps_kernel():
    """RBF, linear and constant parts: the kernel of the paper's USPS experiments, with an offset."""
    linear = ConstantKernel(0.01, (1e-6, 1e2)) * DotProduct(0.0, "fixed")
    return (
        ConstantKernel(1.0, (1e-3, 1e3)) * RBF(8.0, (0.5, 100.0)) + linear + ConstantKernel(1.0, (1e-5, 1e3))
    )


def digits_against_rest(fit_one, X, y, X_test, y_test, digits):
    """Decision values of every digit's classifier, overall error and each binary error, in %."""
    columns, binary = [], []
    for digit in digits:
        target = np.where(y < 0, 0, np.where(y == digit, 1, -1))
        model = fit_one(digit, X, target)
        columns.append(model.decision_function(X_test))
        binary.append(100.0 * np.mean(model.predict(X_test) != np.where(y_test == digit, 1, -1)))
    winner = np.array(digits)[np.argmax(columns, axis=0)]
    return 100.0 * np.mean(winner != y_test), binary


def run_kernels(work, digits, n_active=500, n_rounds=2):
    """One kernel a digit, learnt by the sparse classifier on all labels."""
    X, y, X_test, y_test = usps()
    kernels, start = {}, time.perf_counter()

    def fit_one(digit, X, target):
        model = SparseGPClassifier(
            usps_kernel(), posterior="active", n_active=n_active, n_rounds=n_rounds, random_state=0
        ).fit(X, target)
        kernels[digit] = model.kernel_
        return model

    error, binary = digits_against_rest(fit_one, X, y, X_test, y_test, digits)
    (work / "usps_kernels.pkl").write_bytes(pickle.dumps(kernels))
    report("USPS, all labels, d = 500", [error], [binary], start)


def digits_at_once(model, X_test, y_test):
    """Overall error of a classifier of all digits, and the error of each against the rest, in %."""
    decision = model.decision_function(X_test)
    binary = [100.0 * np.mean((decision[:, d] > 0) != (y_test == d)) for d in range(10)]
    return 100.0 * np.mean(model.classes_[decision.argmax(axis=1)] != y_test), binary


def run_given(work, shares, labellings, n_active):
    """LPJ05 Table 2: few labels, the kernels handed in; all digits at once, each row being one of them."""
    X, y, X_test, y_test = usps()
    kernels = pickle.loads((work / "usps_kernels.pkl").read_bytes())
    kernel = CompoundKernel([kernels[d] for d in range(10)])
    for share in shares:
        results: dict[str, tuple[list, list]] = {}
        start = time.perf_counter()
        for seed in labellings:
            labelled = np.random.default_rng(seed).random(len(y)) < share
            some = np.where(labelled, y, -1)
            models = {
                "null category": SparseGPClassifier(
                    kernel, unlabeled=-1, n_active=n_active, optimizer=None, random_state=0
                ).fit(X, some),
                "labelled rows only": SparseGPClassifier(
                    kernel, n_active=int(labelled.sum()), optimizer=None, random_state=0
                ).fit(X[labelled], y[labelled]),
            }
            for name, model in models.items():
                error, binary = digits_at_once(model, X_test, y_test)
                results.setdefault(name, ([], []))[0].append(error)
                results[name][1].append(binary)
                print(f"  r = {share}, labelling {seed}, {name}: {error:.2f}", flush=True)
            for method, found in semi_supervised_baselines(X, some, X_test).items():
                results.setdefault(method, ([], None))[0].append(100.0 * np.mean(found != y_test))
            svm = SVC(C=10.0).fit(X[labelled], y[labelled])
            wrong = 100.0 * (1.0 - svm.score(X_test, y_test))
            results.setdefault("SVC, labelled rows", ([], None))[0].append(wrong)
        for name, (errors, binaries) in results.items():
            report(f"USPS, kernels handed in, r = {share}, {name}", errors, binaries, start)


def run_learnt(share, labellings, n_active):
    """LPJ05 Table 1: few labels, the kernels learnt from them and the unlabelled rows."""
    X, y, X_test, y_test = usps()
    errors, binaries, start = [], [], time.perf_counter()
    for seed in labellings:
        labelled = np.random.default_rng(seed).random(len(y)) < share
        model = SparseGPClassifier(
            usps_kernel(), unlabeled=-1, n_active=n_active, n_rounds=1, random_state=0
        ).fit(X, np.where(labelled, y, -1))
        error, binary = digits_at_once(model, X_test, y_test)
        print(f"  learnt, r = {share}, labelling {seed}: {error:.2f}", flush=True)
        errors.append(error)
        binaries.append(binary)
    report(f"USPS, kernel learnt, r = {share}", errors, binaries, start)


def run_figure5(work):
    """LPJ05 Figure 5: boundaries and null category on the authors' points."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from gleangp.plots import DecisionDisplay

    table = np.loadtxt(DATA / "crescent" / "crescent_semisup.csv", delimiter=",", skiprows=1)
    X, y = table[:, :2], table[:, 2].astype(int)
    has = y != 0
    models = {
        "labelled rows only": SparseGPClassifier(posterior="active", random_state=0).fit(X[has], y[has]),
        "null category, 'active', d = 100": SparseGPClassifier(
            unlabeled=0, posterior="active", n_active=100, random_state=0
        ).fit(X, y),
        "null category, defaults": SparseGPClassifier(unlabeled=0, random_state=0).fit(X, y),
    }
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        DecisionDisplay.from_estimator(model, X, y, ax=ax)
        ax.set_title(name, fontsize=10)
    figure.savefig(work / "lpj05_figure_5.png", dpi=70)


def run_virtual(work, digits, n_active=1000):
    """LPJ05 Table 3: one-pixel translations of the active points, d = 1000; and an SVM of the same kind."""
    X, y, X_test, y_test = usps()
    kernels = pickle.loads((work / "usps_kernels.pkl").read_bytes())
    moves = translations((16, 16), fill=-1.0)
    for name, invariances in (("without", None), ("with virtual vectors", moves)):
        start = time.perf_counter()

        def fit_one(digit, X, target, invariances=invariances):
            return SparseGPClassifier(
                kernels[digit],
                posterior="active",
                n_active=n_active,
                optimizer=None,
                invariances=invariances,
            ).fit(X, target)

        error, binary = digits_against_rest(fit_one, X, y, X_test, y_test, digits)
        report(f"USPS, d = {n_active}, {name}", [error], [binary], start)
    start = time.perf_counter()
    svm = SVC(kernel="rbf", C=10.0, gamma="scale").fit(X, y)
    plain = 100.0 * np.mean(svm.predict(X_test) != y_test)
    support = svm.support_
    X_virtual = np.vstack([X[support], *(move(X[support]) for move in moves)])
    svm = SVC(kernel="rbf", C=10.0, gamma="scale").fit(X_virtual, np.tile(y[support], 1 + len(moves)))
    report(
        f"SVM with virtual support vectors (without: {plain:.2f})",
        [np.mean(svm.predict(X_test) != y_test) * 100],
        None,
        start,
    )


def report(title, errors, binaries, start):
    """One line of a table, and the binary errors below it."""
    seconds = time.perf_counter() - start
    print(f"{title}: {np.mean(errors):.2f} ({np.std(errors):.2f}) %, n = {len(errors)}, {seconds:.0f} s")
    if binaries is not None:
        print("   each digit: " + " ".join(f"{b:.2f}" for b in np.mean(binaries, axis=0)), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["crescents"])
    parser.add_argument("--quick", action="store_true", help="three seeds of the crescents, nothing else")
    parser.add_argument("--work", type=Path, default=Path("."), help="folder for learnt kernels")
    parser.add_argument("--labellings", type=int, nargs="*", default=[10, 11, 12], help="seeds of labellings")
    parser.add_argument("--active", type=int, default=800, help="active points with few labels")
    parser.add_argument("--digits", type=int, nargs="*", default=list(range(10)))
    parser.add_argument("--shares", type=float, nargs="*", default=[0.05, 0.10])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*stopped after")
    warnings.filterwarnings("ignore", category=FutureWarning)
    if arguments.quick:
        return run_crescents(3)
    jobs = {
        "crescents": lambda: run_crescents(10),
        "kernels": lambda: run_kernels(arguments.work, arguments.digits),
        "figure5": lambda: run_figure5(arguments.work),
        "given": lambda: run_given(
            arguments.work, arguments.shares, arguments.labellings, arguments.active
        ),
        "learnt": lambda: run_learnt(0.05, arguments.labellings, arguments.active),
        "virtual": lambda: run_virtual(arguments.work, arguments.digits),
    }
    for part in arguments.parts:
        jobs[part]()


if __name__ == "__main__":
    main()
