"""GPy: EP run anew at every step of the optimiser ("nested"; its default stops far from the optimum), and VB."""

import GPy
from GPy.inference.latent_function_inference import EP
from measured import Fit, from_probability, report

MOST = 1000  # iterations of L-BFGS-B


def fit(x, y, method):
    labels, kernel = (y[:, None] > 0).astype(float), GPy.kern.RBF(x.shape[1], variance=1.0, lengthscale=1.0)
    probit = GPy.likelihoods.Bernoulli()
    if method == "ep":
        model = GPy.core.GP(x, labels, kernel, probit, inference_method=EP(ep_mode="nested"))
    else:
        model = GPy.models.GPVariationalGaussianApproximation(x, labels, kernel, probit)
    model.optimize("lbfgsb", max_iters=MOST)
    run = model.optimization_runs[-1]
    return Fit(
        objective=-float(model.log_likelihood()),
        objective_name="-log evidence (ep)" if method == "ep" else "-ELBO",
        log_prob=from_probability(lambda new: model.predict(new)[0]),
        kernel=(float(kernel.variance[0]), float(kernel.lengthscale[0])),
        evaluations=int(run.funct_eval),
        status=str(run.status),
    )


if __name__ == "__main__":
    report(fit)
