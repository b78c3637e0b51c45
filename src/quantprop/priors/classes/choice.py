"""The process of a model of several classes, from that of their functions, and back."""

from __future__ import annotations

from quantprop.priors.base import Process
from quantprop.priors.classes.points import ClassesInducing, TwoClassesInducing
from quantprop.priors.classes.process import Classes
from quantprop.priors.dense import Dense
from quantprop.priors.inducing import Inducing


def holding_classes(process: Process, classes: int, rows: str) -> Process:
    """The process of the rows (`LAYOUTS`) of a model of several classes."""
    one_difference = rows == "differences" and classes == 2
    if isinstance(process, Inducing):
        return TwoClassesInducing(process) if one_difference else ClassesInducing(classes, process, rows)
    if not isinstance(process, Dense):
        raise ValueError(f"process must be Dense() or Inducing() for several classes; got {process!r}")
    return process if one_difference else Classes(classes, rows)


def holding_functions(process: Process) -> Process:
    """The process of the functions behind one of rows."""
    if isinstance(process, (ClassesInducing, TwoClassesInducing)):
        return process.functions
    return Dense() if isinstance(process, Classes) else process
