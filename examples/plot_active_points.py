"""
Few points, all rows
====================

Thirty of two thousand rows are kept as active points; all rows speak through them.
"""

import numpy as np

from gleangp import SparseGPRegressor
from gleangp.plots import PredictionDisplay

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (2000, 1))
X = X[(X[:, 0] < 4) | (X[:, 0] > 7)]  # a gap, where nothing is known
y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(len(X))

model = SparseGPRegressor(n_active=30, random_state=0).fit(X, y)
display = PredictionDisplay.from_estimator(model, X, y)

# %%
# The dark band is the uncertainty of the function, the light one that of new observations. Both grow in
# the gap and beyond the data. The ticks are the active points.

model.kernel_
