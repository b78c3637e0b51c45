"""Methods: local rules that renew a site, with the evidence each gives; one file each."""

from collections.abc import Callable, Mapping

from quantprop.methods.base import Method
from quantprop.methods.ep import EP, QP, PowerEP
from quantprop.methods.laplace import Laplace
from quantprop.methods.vb import VB
from quantprop.runtime.names import check_name

__all__ = ["EP", "METHODS", "QP", "VB", "Laplace", "Method", "PowerEP", "by_name"]

METHODS: Mapping[str, Callable[[], Method]] = {
    "qp": QP,
    "ep": EP,
    "power-ep": lambda: PowerEP(0.5),
    "vb": VB,
    "laplace": Laplace,
}


def by_name(method: Method | str) -> Method:
    """A method by its short name, or as given.

    >>> from quantprop.methods import by_name
    >>> by_name("power-ep")
    PowerEP(0.5)
    """
    if isinstance(method, Method):
        return method
    check_name("method", method, METHODS, " or a Method")
    return METHODS[method]()
