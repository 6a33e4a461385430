"""What the shared-latent-space estimators have in common: parameters, the transformer, bookkeeping."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from sklearn.utils.validation import check_array

from gleangp._compat import StrOptions, fit_context
from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import filled_blocks
from gleangp.estimators._base import TaskEstimator
from gleangp.estimators._parameters import COUNT, NOT_NEGATIVE, generator_from, given, parameters
from gleangp.estimators._sparse import rows_to_learn
from gleangp.exceptions import LabelError
from gleangp.io.classes import register
from gleangp.kernels import has_white
from gleangp.kernels.evaluate import length_scales
from gleangp.models.default_kernel import default_priors
from gleangp.models.defaults import LATENT_SPACE
from gleangp.models.latent import model as latent
from gleangp.models.latent.model import Labels, LatentModel
from gleangp.models.latent.space import Observations, Perceptron, Settings, observe
from gleangp.models.latent.terms import Mapping
from gleangp.models.local.data import canonical_order
from gleangp.models.parameters import Parameters
from gleangp.numerics.parallel import on_one_thread
from gleangp.progress import FitProgress, warn_about_fit

register(latent.Blend, LatentModel, Mapping, Observations, Perceptron)


def latent_kernel(n_components: int, *, ard: bool) -> Kernel:
    """RBF and a bias, both started where positions of unit variance want them (UQD07 eq. 2)."""
    rbf = RBF(np.ones(n_components) if ard and n_components > 1 else 1.0, (0.03, 30.0))
    return ConstantKernel(1.0, (1e-3, 1e3)) * rbf + ConstantKernel(0.1, (1e-6, 1e2))


@parameters
class SharedLatentMixin(TaskEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ABC):
    """Tasks in one latent space. An estimator declares the two attributes and three methods below.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the latent space.
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance over the latent space, from which every mapping starts to learn its own. With
        ``transfer="blend"`` labels have other kernels: `label_kernels_`. None: `C * RBF + C`. White noise is
        added to the mappings with Gaussian noise if it has none.
    ard : bool, default=False
        One length scale per latent dimension in the default kernel; see `relevance_`.
    back_constraint : {"mlp"} or None, default="mlp"
        "mlp": a perceptron with one hidden layer gives the positions. None: positions are optimised freely,
        and new rows are placed by a short search from the nearest training rows.
    n_active : int, default=None
        Rows whose positions are the basis of every mapping, through which all rows contribute. Training costs
        O(n n_active^2). None: all rows up to 2000, else 200.
    hidden_units : int, default=50
        Of the perceptron.
    n_observed : int, default=None
        Leading principal components of the features that the latent space explains; None: 100.
    label_weight : float, default=1.0
        Weight of the labels against the observations; 0 gives a latent space without labels.
    weight_decay : float, default=20.0
        Penalty on the perceptron's weights. Urtasun, Quattoni & Darrell (2007) are reproduced with 5.
    max_iter : int, default=300
        Maximum number of iterations of the optimiser.
    tol : float, default=3e-4
        Least change of the objective in an iteration, in nats per observed number (rows times components of
        the features) or as a share of it, whichever is more; below it learning stops.
    n_init : int, default=1
        Starts with other hidden units; the best objective is kept.
    transfer : {"blend", "latent"}, default="blend"
        "blend": a task is a function of the latent positions plus one of the features, of variances learnt
        from the tasks of `fit`. If this does not predict them better from few labels, labels depend on the
        features alone; see `transfer_report`. "latent": a function of the positions alone, as in Urtasun,
        Quattoni & Darrell (2007), in about half the time.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, n_components)
        Latent positions of the training rows.
    basis_ : ndarray of shape (d,)
        Training rows whose positions are the basis of the mappings: all rows, or `n_active` of them.
    kernel_ : Kernel
        Of the map to the features, with its learnt parameters.
    label_kernels_ : list of Kernel
        Of the mapping to the labels, or to the standardised targets, of every task in the order of `tasks_`.
    relevance_ : ndarray of shape (n_components,)
        Length scales that the training rows span in each dimension; one far below the others is not used.
    objective_, n_iter_ : float, int
        Minus the log posterior, up to a constant, and iterations, of the best start.
    """

    n_components: int = given([COUNT], default=2, kw_only=False)
    kernel: Any = given([Kernel, None], default=None)
    ard: bool = given(["boolean"], default=False)
    back_constraint: str | None = given([StrOptions({"mlp"}), None], default="mlp")
    n_active: int | None = given([COUNT, None], default=None)
    hidden_units: int = given([COUNT], default=50)
    n_observed: int | None = given([COUNT, None], default=None)
    label_weight: float = given([NOT_NEGATIVE], default=1.0)
    weight_decay: float = given([NOT_NEGATIVE], default=20.0)
    max_iter: int = given([COUNT], default=300)
    tol: float = given([NOT_NEGATIVE], default=3e-4)
    n_init: int = given([COUNT], default=1)
    transfer: str = given([StrOptions({"blend", "latent"})], default="blend")

    _targets_are_signs: ClassVar[bool]  # -1 and +1, or else numbers
    label_noise = "gaussian"  # a parameter of the classifier

    @abstractmethod
    def _read_targets(self, y: Any, n_rows: int) -> np.ndarray:
        """Targets (n_rows,): numbers of the classes (-1 without a label), or numbers (NaN without one)."""

    @abstractmethod
    def _labels(self, y: np.ndarray, codes: IntArray) -> list[Labels]:
        """Labels of every task in the coding of its mapping, from `_read_targets`."""

    @abstractmethod
    def _labels_of_new_task(self, y: Any, n_rows: int, task: Any) -> Labels:
        """The same of one more task."""

    @abstractmethod
    def _label_columns(self) -> list[int]:
        """Number of columns of the label mapping of every task; raises if these are not known."""

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Learn the latent space and every task's mapping to its labels or targets.

        Every task needs labels of two classes, or two targets.
        """
        given = X, y, tasks
        X, codes = self._learn_inputs(X, tasks)
        y = self._read_targets(y, len(X))
        order = rows_to_learn(X, y, codes)
        labels = self._labels(y[order], codes[order])
        self._check_dimensions(X)
        settings = self._settings(len(X))
        blend = self.transfer == "blend"
        learn = latent.fit_blended_model if blend else latent.fit_latent_model
        stages = latent.most_stages(settings, len(labels) if blend else 1)
        progress = FitProgress(self, given, stages)
        with on_one_thread():
            settings = replace(settings, progress=progress)
            model = learn(X[order], labels, settings, generator_from(self.random_state))
        self.embedding_, self.basis_ = model.positions[np.argsort(order)], np.arange(len(X))
        self.objective_, self.n_iter_ = model.objective, model.n_iterations
        if model.basis is not None:
            self.basis_ = order[model.basis]
        self._store(model)
        warn_about_fit(
            self,
            model,
            f"after max_iter={self.max_iter} iterations while the objective still changed by "
            f"{model.last_change:.3g} nats per observed number in one (tol={self.tol}). Raise max_iter for a "
            "better optimum, or tol to stop earlier.",
            "Rows may be repeated; a WhiteKernel with a larger lower bound makes the model well-posed.",
        )
        progress.end(fitted=True)
        return self

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Learn one more task from few rows in the latent space of the other tasks.

        Its rows are placed by the learnt map, and only its mapping to labels or targets is fitted
        (Discriminative Transfer). The latent space and the other tasks stay as they are.
        """
        X = self._rows_of_new_task(X, task)
        labels = self._labels_of_new_task(y, len(X), task)
        X, n_rows = X[labels.rows], len(labels.rows)
        order = canonical_order(X, labels.targets[:, 0], np.zeros(n_rows, dtype=np.intp))
        with on_one_thread():
            self._store(latent.add_task(self._model, X[order], labels.targets[order], self._settings(n_rows)))
        return self

    def transform(self, X: Any) -> Any:
        """Latent positions of rows of any task.

        Returns
        -------
        ndarray or frame of shape (n, n_components)
            A frame after ``set_output(transform="pandas")``.
        """
        X, _ = self._read_inputs(X, reset=False)
        with on_one_thread():
            return self._model.locate(X)

    def inverse_transform(self, Z: Any, return_std: bool = False) -> Any:
        """Features at latent positions: the mean of the map to the observations.

        Parameters
        ----------
        Z : frame or array-like of shape (n, n_components)
            Latent positions.
        return_std : bool, default=False
            Return the standard deviation of every feature too: of the map, its noise, and the
            components of the features that the map leaves out.

        Returns
        -------
        X, std : ndarray of shape (n, p)
            Without the task column; `std` only with `return_std`.
        """
        Z = check_array(Z, dtype=np.float64, estimator=self, input_name="Z")
        if Z.shape[1] != self._n_features_out:
            raise ValueError(
                f"Z has {Z.shape[1]} columns, but the latent space of this {type(self).__name__} has "
                f"{self._n_features_out} dimensions. Give positions as transform returns them."
            )
        mean, var = self._model.reconstruct(Z)
        return (mean, np.sqrt(var)) if return_std else mean

    def transfer_report(self) -> dict[Any, dict[str, Any]]:
        """How much the latent space helps each task.

        Labels are predicted from other labels of their task, once with the latent positions and once
        with the features alone. The tasks of `fit` are placed in spaces that were learnt without them, and
        their labels are predicted from ten others. Labels of `add_task` are predicted from nine tenths of
        the others, in the space as it is. For ``transfer="blend"`` only.

        Returns
        -------
        dict
            Task -> dict with the mean log score of its held-out labels with the space ("with_space") and
            without it ("without_space"), their difference ("gain", in nats per label), whether it is
            positive ("helped"), and whether predictions use the space ("used"). They do if the gain is
            at least 0.02 on average over the tasks of `fit`. Scores that were not measured are NaN and
            "helped" is None: for the only task of `fit`, which cannot be left out, and for tasks without
            rows. `pandas.DataFrame(report).T` is a table.

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SharedLatentGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> hidden, tasks = rng.normal(size=(60, 1)), np.repeat(["a", "b", "c"], 20)
        >>> X = hidden @ rng.normal(size=(1, 5)) + 0.1 * rng.normal(size=(60, 5))
        >>> model = SharedLatentGPRegressor(n_components=1, tol=0.01, random_state=0)
        >>> report = model.fit(X, np.sin(hidden[:, 0]), tasks=tasks).transfer_report()
        >>> sorted(report), sorted(report["a"])
        (['a', 'b', 'c'], ['gain', 'helped', 'used', 'with_space', 'without_space'])
        """
        measured = self._model.blend
        if measured is None:
            raise ValueError(
                'this model was fitted with transfer="latent", where labels depend on the latent positions '
                'alone, so there is nothing to compare. Fit with transfer="blend".'
            )
        report = {}
        for code, (with_space, without) in enumerate(measured.scores.tolist()):
            gain = with_space - without
            found = {"with_space": with_space, "without_space": without, "gain": gain}
            found["helped"] = None if np.isnan(gain) else gain > 0.0
            report[self._task_name(code)] = found | {"used": measured.used}
        return report

    def _check_parts(self, n_inputs: int) -> None:
        if not isinstance(self._model, LatentModel) or len(self._model.label_maps) != self._n_tasks:
            raise ValueError(f"no fitted model for the {self._n_tasks} tasks.")
        if len(self._model.observations.mean) != n_inputs:
            raise ValueError(f"a model of other inputs than the {n_inputs} it says.")
        n_columns, expected = [m.weights.shape[1] for m in self._model.label_maps], self._label_columns()
        if n_columns != expected:
            raise ValueError(f"label mappings of {n_columns} columns, not {expected}.")
        self._store(self._model)

    @property
    def _n_features_out(self) -> int:
        return self._model.positions.shape[1]

    def _store(self, model: LatentModel) -> None:
        self._model, self.kernel_ = model, model.observation_map.kernel
        self.label_kernels_ = [m.kernel for m in model.label_maps]
        of_space = [self.kernel_] if model.blend is not None else [self.kernel_, *self.label_kernels_]
        scales = [length_scales(kernel, self._n_features_out) for kernel in of_space]
        self.relevance_ = model.positions.std(axis=0) / np.min(scales, axis=0)

    def _settings(self, n_rows: int) -> Settings:
        kernel = latent_kernel(self.n_components, ard=self.ard) if self.kernel is None else clone(self.kernel)
        noisy = kernel if has_white(kernel) else kernel + WhiteKernel(*LATENT_SPACE.white)
        probit = self.label_noise == "probit"
        label_kernel = kernel if probit else noisy
        few = self.n_active is None and n_rows <= LATENT_SPACE.n_dense
        as_given = ("n_components", "label_weight", "weight_decay", "max_iter", "tol", "n_init")
        return Settings(
            observation_kernel=noisy,
            label_parameters=Parameters(label_kernel, None, (), default_priors(label_kernel)),
            probit=probit,
            n_scores=LATENT_SPACE.n_scores if self.n_observed is None else self.n_observed,
            n_active=None if few else self.n_active or LATENT_SPACE.n_basis,
            n_hidden=None if self.back_constraint is None else self.hidden_units,
            signs=self._targets_are_signs,
            **{name: getattr(self, name) for name in as_given},
        )

    def _check_dimensions(self, X: FloatArray) -> None:
        if self.n_components > X.shape[1]:
            raise ValueError(
                f"n_components={self.n_components} is more than the number of features, "
                f"n_features={X.shape[1]}. Ask for at most as many dimensions as there are features."
            )
        if len(X) < 2:
            raise ValueError(f"X has n_samples={len(X)}, and a latent space needs at least two rows.")
        if not observe(X, 1).components.size:
            raise ValueError(
                f"all {X.shape[1]} features are constant over the {len(X)} rows, up to rounding of numbers "
                f"as large as {np.abs(X).max():.3g}. Give features that vary, or subtract their means first."
            )

    def _label_predictions(self, X: Any, codes: Any) -> list[tuple[int, Any, Any, Any]]:
        """Number, rows, mean and variance (rows, columns) of the labels of every task that occurs."""
        maps = self._model.label_maps
        with on_one_thread():
            inputs = self._model.label_inputs(X)
            return [(t, rows, *maps[t].predict(inputs[rows])) for t, rows in filled_blocks(codes)]

    def _check_rows(self, n_labeled: int, task: Any) -> None:
        if n_labeled < 2:
            raise LabelError(
                f"{in_words(task)} has {n_labeled} labeled rows (n_samples={n_labeled}), and a label mapping "
                "is learnt from at least two. Give more rows of it, or leave it out."
            )

    def _task_name(self, code: int) -> Any:
        return None if self.tasks_ is None else self.tasks_[code].item()


def in_words(task: Any) -> str:
    """The name of a task for messages; None: there are no tasks."""
    return "y" if task is None else f"task {task!r}"
