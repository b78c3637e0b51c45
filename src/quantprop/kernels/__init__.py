"""Covariance functions. A kernel is a record that sees one pair of points, or all pairs of two sets of points.

Kernels add, multiply and take powers: `SquaredExponential() + Constant(2.0) * Linear() ** 2`. A kernel of your own is a
subclass with one method, `__call__(x, z)` for two points, written in jax.numpy:

>>> import jax.numpy as jnp
>>> from quantprop import kernels
>>> class Brownian(kernels.Kernel):
...     def __call__(self, x, z):
...         return jnp.minimum(x[0], z[0])
>>> Brownian().cross(jnp.array([[1.0], [2.0]]), jnp.array([[1.5]])).tolist()
[[1.0], [1.5]]
"""

from quantprop.kernels.base import (
    LENGTHSCALE,
    VARIANCE,
    Bounds,
    Column,
    Columns,
    Kernel,
    Matrix,
    Pairs,
    Point,
    Points,
    Power,
    Product,
    Sum,
)
from quantprop.kernels.categories import Categories, Coregion, NewLevelWarning
from quantprop.kernels.difference import Difference
from quantprop.kernels.distances import squared_distances
from quantprop.kernels.grammar import TermError
from quantprop.kernels.pairwise import Pairwise, from_tinygp
from quantprop.kernels.per_class import PerClass
from quantprop.kernels.series import IntegratedWiener, Oscillation
from quantprop.kernels.simple import Constant, Linear, White
from quantprop.kernels.stationary import (
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)
from quantprop.kernels.structure import columns_of, groups_of, located, summands
from quantprop.kernels.terms import Terms, written

__all__ = [
    "LENGTHSCALE",
    "VARIANCE",
    "Bounds",
    "Categories",
    "Column",
    "Columns",
    "Constant",
    "Coregion",
    "Difference",
    "IntegratedWiener",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Matrix",
    "NewLevelWarning",
    "Oscillation",
    "Pairs",
    "Pairwise",
    "PerClass",
    "Periodic",
    "Point",
    "Points",
    "Power",
    "Product",
    "RationalQuadratic",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "TermError",
    "Terms",
    "White",
    "columns_of",
    "from_tinygp",
    "groups_of",
    "located",
    "squared_distances",
    "summands",
    "written",
]
