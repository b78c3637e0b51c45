"""Likelihoods p(y | f). Each has one line here: whatever asks for likelihoods by name finds it."""

from quantprop.likelihoods.additive import DoubleExponential as DoubleExponential
from quantprop.likelihoods.additive import Gaussian as Gaussian
from quantprop.likelihoods.additive import StudentT as StudentT
from quantprop.likelihoods.base import Datum as Datum
from quantprop.likelihoods.base import Likelihood as Likelihood
from quantprop.likelihoods.binary import Heaviside as Heaviside
from quantprop.likelihoods.binary import Logit as Logit
from quantprop.likelihoods.binary import Probit as Probit
from quantprop.likelihoods.censored import Censored as Censored
from quantprop.likelihoods.classes import MultinomialProbit as MultinomialProbit
from quantprop.likelihoods.classes import Softmax as Softmax
from quantprop.likelihoods.counts import NegativeBinomial as NegativeBinomial
from quantprop.likelihoods.counts import Poisson as Poisson
from quantprop.likelihoods.counts import moment_matched_negative_binomial as moment_matched_negative_binomial
from quantprop.likelihoods.custom import Custom as Custom
from quantprop.likelihoods.derived import ByOutput as ByOutput
from quantprop.likelihoods.ordinal import Ordinal as Ordinal
from quantprop.likelihoods.probabilities import Beta as Beta
from quantprop.likelihoods.probabilities import Binomial as Binomial
from quantprop.likelihoods.rates import Gamma as Gamma
from quantprop.likelihoods.survival import LogLogistic as LogLogistic
from quantprop.likelihoods.survival import Weibull as Weibull
from quantprop.likelihoods.varying import Varying as Varying
from quantprop.likelihoods.warped import Warped as Warped
from quantprop.likelihoods.zero_inflated import ZeroInflatedNegativeBinomial as ZeroInflatedNegativeBinomial
from quantprop.likelihoods.zero_inflated import ZeroInflatedPoisson as ZeroInflatedPoisson
from quantprop.runtime.names import check_name

_KINDS = (kind for kind in list(vars().values()) if isinstance(kind, type) and hasattr(kind, "name"))
KINDS: dict[str, type[Likelihood]] = {kind.name: kind for kind in sorted(_KINDS, key=lambda kind: kind.name)}


def names(*observes: str) -> tuple[str, ...]:
    """The names of all likelihoods, or of those of some kinds of y, such as "counts" (`Likelihood.observes`)."""
    return tuple(name for name, kind in KINDS.items() if not observes or kind.observes in observes)


def by_name(name: str) -> type[Likelihood]:
    """The class of a name.

    >>> from quantprop import likelihoods
    >>> likelihoods.by_name("student-t")()
    StudentT(df=4.0, scale=1.0)
    """
    check_name("likelihood", name, KINDS)
    return KINDS[name]
