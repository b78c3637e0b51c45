"""Methods: local rules that renew a site, with the evidence each gives; one file each."""

from quantprop.methods.base import Method
from quantprop.methods.ep import EP, QP, PowerEP
from quantprop.methods.laplace import Laplace
from quantprop.methods.vb import VB

__all__ = ["EP", "QP", "VB", "Laplace", "Method", "PowerEP"]
