"""
Fit a large table with thirty points
====================================

An exact Gaussian process is too slow for many rows. Here thirty of 1400 rows are the
active points. Rows that are near each other are treated exactly; rows that are far
apart depend on each other through the active points.
"""

# %%
# The rows have a gap between 4 and 7, where nothing was measured.

import numpy as np

from gleangp import SparseGPRegressor
from gleangp.plots import PredictionDisplay

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (2000, 1))
X = X[(X[:, 0] < 4) | (X[:, 0] > 7)]
y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(len(X))

# %%
# The fit. The dark band is the uncertainty of the function, the light one that of new
# observations. Both grow in the gap and beyond the data. The ticks are the active
# points.

model = SparseGPRegressor(n_active=30, random_state=0).fit(X, y)
display = PredictionDisplay.from_estimator(model, X, y)

# %%
# The learnt kernel, in units of the standardised target:

model.kernel_
