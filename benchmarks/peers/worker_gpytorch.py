"""GPyTorch: SGPR, stochastic variational classification, and tasks as a batch with one kernel."""

from __future__ import annotations

import warnings

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel
from measure import work

N_INDUCING = 200
BATCH, EPOCHS = 1024, 100
SETTINGS = {
    "regression": "SGPR (InducingPointKernel), 200 inducing points started at random rows and learnt, "
    "ScaleKernel(RBFKernel), length scales started at sqrt(p), float32 (its default), Adam, "
    "100 steps at rate 0.1",
    "classification": "SVGP (VariationalStrategy, CholeskyVariationalDistribution), 200 inducing points "
    "started at random rows and learnt, Bernoulli likelihood, float32, Adam at rate 0.01, batches of 1024, "
    "100 epochs",
    "tasks": "ExactGP over a batch of tasks with one kernel and one noise for all, float32, Adam, "
    "100 steps at rate 0.1; new tasks: set_train_data, parameters as learnt",
}


def tensor(array):
    """As GPyTorch's tutorials have it: float32."""
    return torch.as_tensor(np.asarray(array), dtype=torch.float32)


def rbf(p, ard):
    """C * RBF, started where gleangp starts."""
    base = RBFKernel(ard_num_dims=p if ard else None)
    base.lengthscale = float(np.sqrt(p))
    return ScaleKernel(base)


def some_rows(X):
    """Random rows to start the inducing points at."""
    rows = np.random.default_rng(0).permutation(len(X))[: min(N_INDUCING, len(X))]
    return X[torch.as_tensor(rows)].clone()


class Exact(gpytorch.models.ExactGP):
    """Constant mean and the kernel that is given."""

    def __init__(self, X, y, likelihood, kernel):
        super().__init__(X, y, likelihood)
        self.mean, self.kernel = gpytorch.means.ConstantMean(), kernel

    def forward(self, X):
        """Prior at X."""
        return MultivariateNormal(self.mean(X), self.kernel(X))


class Variational(gpytorch.models.ApproximateGP):
    """Learnt inducing points with a full covariance."""

    def __init__(self, Z, kernel):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        strategy = gpytorch.variational.VariationalStrategy(
            self, Z, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean, self.kernel = gpytorch.means.ConstantMean(), kernel

    def forward(self, X):
        """Prior at X."""
        return MultivariateNormal(self.mean(X), self.kernel(X))


def maximize(model, likelihood, X, y, n_steps):
    """Adam on the exact marginal likelihood (for SGPR: its bound)."""
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = -objective(model(X), y).sum()
        loss.backward()
        optimizer.step()
    model.eval()
    likelihood.eval()


def moments(likelihood, latent):
    """Mean and variance of new targets."""
    target = likelihood(latent)
    return target.mean.numpy().astype(float), target.variance.numpy().astype(float)


def regression(arrays, quick):
    """SGPR."""
    torch.manual_seed(0)
    X, y = tensor(arrays["X"]), tensor(arrays["y"])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    kernel = InducingPointKernel(rbf(X.shape[1], arrays["ard"]), some_rows(X), likelihood)
    model = Exact(X, y, likelihood, kernel)
    maximize(model, likelihood, X, y, 2 if quick else 100)

    def predict(X_test):
        parts = []
        with torch.no_grad():
            for rows in torch.split(tensor(X_test), 1000):
                parts.append(moments(likelihood, model(rows)))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    return predict


def classification(arrays, quick):
    """SVGP."""
    torch.manual_seed(0)
    X, y = tensor(arrays["X"]), tensor(arrays["y"])
    model = Variational(some_rows(X), rbf(X.shape[1], arrays["ard"]))
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    for _ in range(1 if quick else EPOCHS):
        for rows in torch.split(torch.randperm(len(y)), BATCH):
            optimizer.zero_grad()
            loss = -objective(model(X[rows]), y[rows])
            loss.backward()
            optimizer.step()
    model.eval()
    likelihood.eval()

    def predict(X_test):
        with torch.no_grad():
            parts = [likelihood(model(rows)).mean for rows in torch.split(tensor(X_test), 1000)]
        return torch.cat(parts).numpy().astype(float)

    return predict


class Tasks:
    """Tasks of equal size as a batch: one factorisation call for all, one kernel for all."""

    def __init__(self, arrays, quick):
        torch.manual_seed(0)
        self.names, counts = np.unique(arrays["t"], return_counts=True)
        if len(set(counts)) > 1:
            raise SystemExit("tasks of unequal sizes do not make a batch")
        X, y = (np.stack([arrays[key][arrays["t"] == name] for name in self.names]) for key in ("X", "y"))
        self.X, self.y = tensor(X), tensor(y)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.model = Exact(self.X, self.y, self.likelihood, rbf(X.shape[-1], arrays["ard"]))
        maximize(self.model, self.likelihood, self.X, self.y, 2 if quick else 100)

    def predict(self, X, t):
        """Mean and variance of new targets, all tasks at once."""
        rows = [np.flatnonzero(t == name) for name in self.names]
        with torch.no_grad():
            mean, var = moments(self.likelihood, self.model(tensor(np.stack([X[r] for r in rows]))))
        out = np.empty(len(X)), np.empty(len(X))
        out[0][np.concatenate(rows)], out[1][np.concatenate(rows)] = mean.ravel(), var.ravel()
        return out

    def add_task(self, X, y):
        """Condition the learnt prior on the rows of one more task."""
        self.model.set_train_data(tensor(X), tensor(y), strict=False)

        def predict(X_test):
            with torch.no_grad():
                return moments(self.likelihood, self.model(tensor(X_test)))

        return predict


if __name__ == "__main__":
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitters = {"regression": regression, "classification": classification, "tasks": Tasks}
        work(["gpytorch", "torch", "numpy"], fitters, SETTINGS)
