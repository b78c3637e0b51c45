"""scikit-learn: GaussianProcessClassifier, Laplace's method with a logistic likelihood; bounds as they come."""

from measured import Fit, from_probability, report
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel


def fit(x, y, method):
    classifier = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0)).fit(x, y)
    learned = classifier.kernel_
    return Fit(
        objective=-float(classifier.log_marginal_likelihood_value_),
        objective_name="-log evidence (laplace)",
        log_prob=from_probability(lambda new: classifier.predict_proba(new)[:, 1]),
        kernel=(float(learned.k1.constant_value), float(learned.k2.length_scale)),
    )


if __name__ == "__main__":
    report(fit)
