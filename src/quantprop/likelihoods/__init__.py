"""Likelihoods p(y | f); one file each."""

from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.likelihoods.beta import Beta
from quantprop.likelihoods.binary import Heaviside, Logit, Probit
from quantprop.likelihoods.binomial import Binomial
from quantprop.likelihoods.by_output import ByOutput
from quantprop.likelihoods.censored import Censored
from quantprop.likelihoods.custom import Custom
from quantprop.likelihoods.double_exponential import DoubleExponential
from quantprop.likelihoods.gamma import Gamma
from quantprop.likelihoods.gaussian import Gaussian
from quantprop.likelihoods.log_logistic import LogLogistic
from quantprop.likelihoods.multinomial import MultinomialProbit
from quantprop.likelihoods.negative_binomial import NegativeBinomial
from quantprop.likelihoods.ordinal import Ordinal
from quantprop.likelihoods.poisson import Poisson, moment_matched_negative_binomial
from quantprop.likelihoods.softmax import Softmax
from quantprop.likelihoods.student_t import StudentT
from quantprop.likelihoods.warped import Warped
from quantprop.likelihoods.weibull import Weibull
from quantprop.likelihoods.zero_inflated import ZeroInflatedNegativeBinomial, ZeroInflatedPoisson

__all__ = [
    "Beta",
    "Binomial",
    "ByOutput",
    "Censored",
    "Custom",
    "Datum",
    "DoubleExponential",
    "Gamma",
    "Gaussian",
    "Heaviside",
    "Likelihood",
    "LogLogistic",
    "Logit",
    "MultinomialProbit",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Probit",
    "Softmax",
    "StudentT",
    "Warped",
    "Weibull",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "moment_matched_negative_binomial",
]
