"""Pictures of fitted models, as Displays in scikit-learn's manner.

Each has `from_estimator(...)`, which computes and draws, and `plot(ax=...)`, which draws again; the axes are
in `ax_` and the figure in `figure_`. matplotlib comes with the extra `plot`.
"""

from gleangp.plots.activity import ActiveGainDisplay, BudgetDisplay
from gleangp.plots.calibration import CalibrationDisplay, CoverageDisplay
from gleangp.plots.decision import DecisionDisplay
from gleangp.plots.latent import LatentSpaceDisplay
from gleangp.plots.parameters import KernelParametersDisplay
from gleangp.plots.prediction import PredictionDisplay
from gleangp.plots.similarity import TaskSimilarityDisplay

__all__ = [
    "ActiveGainDisplay",
    "BudgetDisplay",
    "CalibrationDisplay",
    "CoverageDisplay",
    "DecisionDisplay",
    "KernelParametersDisplay",
    "LatentSpaceDisplay",
    "PredictionDisplay",
    "TaskSimilarityDisplay",
]
