"""Projections of a tilted density onto the Gaussian family; one file each."""

from quantprop.projections.base import Projection
from quantprop.projections.kl import KL
from quantprop.projections.wasserstein import Wasserstein

__all__ = ["KL", "Projection", "Wasserstein"]
