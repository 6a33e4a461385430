"""GPflow: SGPR, and stochastic variational classification."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from measure import work

N_INDUCING = 200
N_STEPS = 100
BATCH, N_BATCHES = 1024, 1000
SETTINGS = {
    "regression": "SGPR, 200 inducing points started at random rows and learnt, SquaredExponential, length "
    "scales started at sqrt(p), float64 (its default), gpflow.optimizers.Scipy (L-BFGS-B), 100 iterations",
    "classification": "SVGP (whitened), 200 inducing points started at random rows and learnt, Bernoulli "
    "likelihood, float64, natural gradients (gamma 0.1) for the variational distribution, Adam at 0.01 "
    "for the rest, compiled with tf.function, 1000 batches of 1024",
}


def kernel_of(p, ard):
    """C * RBF, started where gleangp starts."""
    scale = np.sqrt(p)
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(p, scale) if ard else scale)


def some_rows(X):
    """Random rows to start the inducing points at."""
    return X[np.random.default_rng(0).permutation(len(X))[: min(N_INDUCING, len(X))]].copy()


def regression(arrays, quick):
    """SGPR."""
    X, y = arrays["X"], arrays["y"][:, None]
    model = gpflow.models.SGPR((X, y), kernel_of(X.shape[1], arrays["ard"]), inducing_variable=some_rows(X))
    optimizer = gpflow.optimizers.Scipy()
    steps = {"maxiter": 2 if quick else N_STEPS}
    optimizer.minimize(model.training_loss, model.trainable_variables, options=steps)

    def predict(X_test):
        parts = [model.predict_y(rows) for rows in np.array_split(X_test, -(-len(X_test) // 1000))]
        return tuple(np.concatenate([p[i].numpy()[:, 0] for p in parts]) for i in (0, 1))

    return predict


def classification(arrays, quick):
    """SVGP."""
    tf.random.set_seed(0)
    X, y = arrays["X"], arrays["y"][:, None]
    kernel = kernel_of(X.shape[1], arrays["ard"])
    likelihood = gpflow.likelihoods.Bernoulli()
    model = gpflow.models.SVGP(kernel, likelihood, some_rows(X), num_data=len(X))
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    data = tf.data.Dataset.from_tensor_slices((X, y)).repeat().shuffle(len(X), seed=0)
    loss = model.training_loss_closure(iter(data.batch(min(BATCH, len(X)))), compile=False)
    natural = gpflow.optimizers.NaturalGradient(gamma=0.1)
    adam = tf.keras.optimizers.Adam(0.01)

    @tf.function
    def step():
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        with tf.GradientTape() as tape:
            value = loss()
        variables = model.trainable_variables
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    for _ in range(2 if quick else N_BATCHES):
        step()
    return lambda X_test: model.predict_y(X_test)[0].numpy()[:, 0]


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    work(
        ["gpflow", "tensorflow-cpu", "tensorflow-probability", "numpy"],
        {"regression": regression, "classification": classification},
        SETTINGS,
    )
