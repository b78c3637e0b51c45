"""Low rank plus neighbours: what is smooth by inducing points, the rest by each row's nearest rows."""

from quantprop.priors.neighbours.prior import NeighboursPrior
from quantprop.priors.neighbours.process import Neighbours, with_neighbours

__all__ = ["Neighbours", "NeighboursPrior", "with_neighbours"]
