"""
Recognise digits that are shifted by a pixel
============================================

A digit moved by a pixel is still the same digit. With `invariances=`, moved copies of
the active points compete for the active set (Lawrence, Platt & Jordan 2005, section 6).
"""

# %%
# Eights against threes, 8 x 8 pixels
# -----------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import SparseGPClassifier, translations

digits = load_digits()
chosen = np.isin(digits.target, [3, 8])
X, y = digits.data[chosen] / 16.0, digits.target[chosen]
train, test = np.arange(0, 60), np.arange(60, len(y))
moves = translations((8, 8), fill=0.0)
X_test = np.vstack([X[test], *(move(X[test]) for move in moves)])
y_test = np.tile(y[test], 1 + len(moves))

kernel = ConstantKernel(4.0) * RBF(3.0)
settings = {"posterior": "active", "n_active": 40, "n_rounds": 1, "random_state": 0}
plain = SparseGPClassifier(kernel, **settings).fit(X[train], y[train])
virtual = SparseGPClassifier(kernel, invariances=moves, **settings).fit(
    X[train], y[train]
)
print("accuracy on test images, as they are and moved by a pixel:")
print(f"{plain.score(X_test, y_test):.3f} without virtual vectors")
print(f"{virtual.score(X_test, y_test):.3f} with virtual vectors")

# %%
# Which copies were chosen
# ------------------------
# The first active points of the model with invariances, in order of inclusion.

names = ["as it is", "up", "down", "left", "right"]
figure, axes = plt.subplots(2, 8, figsize=(10, 3.2), layout="constrained")
for ax, row, move in zip(
    axes.flat, virtual.active_, virtual.active_virtual_, strict=False
):
    image = X[train][row] if move < 0 else moves[move](X[train][row : row + 1])[0]
    ax.imshow(image.reshape(8, 8), cmap="gray_r")
    ax.set_title(
        f"row {row}\n{names[move + 1]}",
        fontsize=8,
        color="black" if move < 0 else "tab:red",
    )
    ax.set_axis_off()
share = np.mean(virtual.active_virtual_ >= 0)
figure.suptitle(f"{share:.0%} of the active points are virtual")
plt.show()
