"""
Recognise a new digit from ten examples
=======================================

Four tasks are known: "is this a 1?", "a 2?", "a 4?", "a 5?". They share a latent space.
A fifth task, "is this a 3?", has ten pictures. ``add_task`` places them in the space of
the four and fits only the new label mapping, after Urtasun, Quattoni & Darrell (2007).
The function of the new task depends on the positions and on the pixels.
``transfer_report`` shows whether the space helped. The page on the method has tables.
"""

# %%
# The pictures are USPS digits if the environment variable GLEANGP_DATA names a folder
# that has them, otherwise the small digits of scikit-learn. Every task has its own
# pictures, half of them of its digit.
import os
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gleangp import SharedLatentGPClassifier, SparseGPClassifier

usps = Path(os.environ.get("GLEANGP_DATA", "")) / "usps" / "usps.npz"
if usps.is_file():
    with np.load(usps) as file:
        X, digit, count = file["X_train"].astype(float), file["y_train"], 100
else:
    (X, digit), count = load_digits(return_X_y=True), 40

rng = np.random.default_rng(1)
left = (digit >= 1) & (digit <= 5)


def draw(wanted, n):
    """Pictures of a digit and of others, alternating; none is drawn twice."""
    rows = np.empty(2 * n, dtype=int)
    for k, kind in enumerate((digit == wanted, digit != wanted)):
        rows[k::2] = rng.choice(np.flatnonzero(kind & left), n, replace=False)
    left[rows] = False
    return rows, np.where(digit[rows] == wanted, "yes", "no")


target_test, answer_test = draw(3, count)
target, answer = draw(3, 5)
sources = {d: draw(d, count) for d in (1, 2, 4, 5)}

# %%
# Learn the latent space of the four source tasks, then the new task.
rows = np.concatenate([r for r, _ in sources.values()])
answers = np.concatenate([a for _, a in sources.values()])
tasks = np.repeat([f"is it {d}" for d in sources], 2 * count)
model = SharedLatentGPClassifier(n_components=3, tol=5e-4, random_state=0).fit(
    X[rows], answers, tasks
)

begin = time.perf_counter()
model.add_task(X[target], answer, "is it 3")
print(f"added the task in {1e3 * (time.perf_counter() - begin):.0f} ms")
for name, entry in model.transfer_report().items():
    print(f"{name}: the space gains {entry['gain']:+.3f} nats per label")

# %%
# For comparison: a Gaussian process on the pixels of the ten pictures alone.
alone = SparseGPClassifier(random_state=0).fit(X[target], answer)
asked = np.repeat("is it 3", len(target_test))
error = 1 - model.score(X[target_test], answer_test, asked)
print(f"error with the latent space: {error:.3f}")
print(
    f"error on pixels alone:       {1 - alone.score(X[target_test], answer_test):.3f}"
)

# %%
# Two of the three dimensions. Left: the source pictures, by digit. Right: the new task,
# with its ten pictures circled, and the probability of "yes" for the test pictures.
first, second = np.argsort(model.relevance_)[:-3:-1]
figure, axes = plt.subplots(
    1, 2, figsize=(11, 4.6), layout="constrained", sharex=True, sharey=True
)
for d in range(1, 6):
    at = model.embedding_[digit[rows] == d]
    axes[0].scatter(at[:, first], at[:, second], s=9, label=f"{d}")
axes[0].legend(title="digit")
axes[0].set_title("source pictures")
new = model.transform(X[target_test])
yes = model.predict_proba(X[target_test], asked)[:, 1]
shown = axes[1].scatter(
    new[:, first], new[:, second], s=14, c=yes, cmap="coolwarm", vmin=0, vmax=1
)
ten = model.transform(X[target])
for kind, colour in (("yes", "C3"), ("no", "C0")):
    at = ten[answer == kind]
    ring = {"facecolors": "none", "edgecolors": colour, "lw": 1.8}
    axes[1].scatter(at[:, first], at[:, second], s=90, label=kind, **ring)
axes[1].legend(title="its ten pictures")
axes[1].set_title("is it 3?")
figure.colorbar(shown, ax=axes[1], label="probability of yes")
plt.show()
