"""quantprop: ep, qp, laplace and vb, learned from variance 1 and lengthscale 1."""

from measured import Fit, report

from quantprop import Model, kernels, likelihoods
from quantprop import fit as learn


def fit(x, y, method):
    fitted = learn(Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit()), x, y, method)
    kernel = fitted.model.kernel
    return Fit(
        objective=-fitted.objective_value,
        objective_name="-ELBO" if method == "vb" else f"-log evidence ({method})",
        log_prob=lambda x, y: fitted.solution.predict_y(x).log_prob(y),
        kernel=(float(kernel.variance), float(kernel.lengthscale)),
        evaluations=fitted.status.evaluations,
        status=str(fitted.status),
    )


if __name__ == "__main__":
    report(fit)
