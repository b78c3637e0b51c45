"""GPflow: VGP, a full Gaussian by variational Bayes, everything learned together by L-BFGS-B."""

import gpflow
from measured import Fit, from_probability, report

MOST = 10_000  # iterations of L-BFGS-B: thousands are needed for some ten thousand numbers


def fit(x, y, method):
    labels = (y[:, None] > 0).astype(float)
    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=1.0)
    model = gpflow.models.VGP((x, labels), kernel, gpflow.likelihoods.Bernoulli())
    ended = gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": MOST, "maxfun": 2 * MOST}
    )
    return Fit(
        objective=-float(model.elbo()),
        objective_name="-ELBO",
        log_prob=from_probability(lambda new: model.predict_y(new)[0].numpy()),
        kernel=(float(kernel.variance.numpy()), float(kernel.lengthscales.numpy())),
        evaluations=int(ended.nfev),
        status=str(ended.message),
    )


if __name__ == "__main__":
    report(fit)
