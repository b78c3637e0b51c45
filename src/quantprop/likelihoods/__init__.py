"""Likelihoods p(y | f); one file each."""

from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.likelihoods.binary import Heaviside, Logit, Probit
from quantprop.likelihoods.gaussian import Gaussian
from quantprop.likelihoods.poisson import Poisson
from quantprop.likelihoods.student_t import StudentT

__all__ = ["Datum", "Gaussian", "Heaviside", "Likelihood", "Logit", "Poisson", "Probit", "StudentT"]
