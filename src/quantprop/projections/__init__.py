"""Projections of a tilted density onto the Gaussian family."""

from quantprop.projections.base import KL, Projection, relative, tilted_scores
from quantprop.projections.wasserstein import Wasserstein

__all__ = ["KL", "Projection", "Wasserstein", "relative", "tilted_scores"]
