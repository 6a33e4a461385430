"""
Find two dimensions that separate similar digits
================================================

Threes and fives are easily confused. A latent space of two dimensions that is learnt
from the pictures alone shows how they vary. Learnt together with the labels, it also
separates the classes. This is Figure 2 of Urtasun, Quattoni & Darrell (2007).
"""

# %%
# The pictures are USPS digits if the environment variable GLEANGP_DATA names a folder
# that has them, otherwise the small digits of scikit-learn.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from gleangp import SharedLatentGPClassifier

usps = Path(os.environ.get("GLEANGP_DATA", "")) / "usps" / "usps.npz"
if usps.is_file():
    with np.load(usps) as file:
        X, digit = file["X_train"].astype(float), file["y_train"]
else:
    X, digit = load_digits(return_X_y=True)

rng = np.random.default_rng(0)
rows = np.concatenate(
    [rng.choice(np.flatnonzero(digit == d), 150, replace=False) for d in (3, 5)]
)
rng.shuffle(rows)
train, test = rows[:200], rows[200:]
pixels = X.shape[1]

# %%
# The same model three times. ``label_weight=0`` leaves the labels out.
# ``back_constraint=None`` optimises the position of every picture, and searches for
# those of new ones. The default places pictures by a perceptron.
pca = PCA(2, random_state=0).fit(X[train])
settings = {"random_state": 0, "tol": 1e-3}
models = {
    "without labels": SharedLatentGPClassifier(label_weight=0.0, **settings),
    "with labels, free positions": SharedLatentGPClassifier(
        back_constraint=None, **settings
    ),
    "with labels, back-constraints": SharedLatentGPClassifier(**settings),
}
for model in models.values():
    model.fit(X[train], digit[train])

# %%
# Training pictures are dots, test pictures crosses. Without labels threes and fives
# overlap; with them the training pictures are separate. Test pictures are placed
# without their labels. The title of each space has the error on them.
figure, axes = plt.subplots(1, 4, figsize=(14, 3.8), layout="constrained")
axes[0].set_title("PCA")
spaces = [(pca.transform(X[train]), pca.transform(X[test]))]
for ax, (name, model) in zip(axes[1:], models.items(), strict=True):
    spaces.append((model.embedding_, model.transform(X[test])))
    ax.set_title(
        f"{name}\ntest error {1 - model.score(X[test], digit[test]):.2f}", fontsize=10
    )
for ax, (old, new) in zip(axes, spaces, strict=True):
    for d, colour in ((3, "C3"), (5, "C0")):
        ax.scatter(*old[digit[train] == d].T, s=14, color=colour, label=f"{d}")
        ax.scatter(*new[digit[test] == d].T, s=16, color=colour, marker="x", lw=0.8)
    ax.set(xticks=[], yticks=[])
axes[0].legend(title="digit")
plt.show()

# %%
# The map back: pictures along a line from the middle of the fives to the middle of the
# threes, as the back-constrained model draws them, and their standard deviation.
model = models["with labels, back-constraints"]
middles = [model.embedding_[digit[train] == d].mean(axis=0) for d in (5, 3)]
line = np.linspace(middles[0], middles[1], 7)
pictures, deviation = model.inverse_transform(line, return_std=True)
side = round(np.sqrt(pixels))
figure, axes = plt.subplots(2, 7, figsize=(10, 3.2), layout="constrained")
for k, share in enumerate(model.predict_proba(pictures)[:, 0]):
    axes[0, k].imshow(pictures[k].reshape(side, side), cmap="gray_r")
    axes[0, k].set_title(f"p(3) = {share:.2f}", fontsize=9)
    axes[1, k].imshow(
        deviation[k].reshape(side, side), cmap="gray_r", vmin=0, vmax=deviation.max()
    )
axes[0, 0].set_ylabel("mean")
axes[1, 0].set_ylabel("deviation")
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# How many dimensions are needed? Here are five, each with its own length scale.
# ``relevance_`` counts the length scales that the pictures span in each of them.
model = SharedLatentGPClassifier(5, ard=True, **settings).fit(X[train], digit[train])
np.sort(model.relevance_)[::-1].round(2)

# sphinx_gallery_thumbnail_number = 2
