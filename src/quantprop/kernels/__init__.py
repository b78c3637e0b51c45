"""Covariance functions. A kernel is a record that sees one pair of points, or all pairs of two sets of points.

Kernels add, multiply and take powers: `SquaredExponential() + Constant(2.0) * Linear() ** 2`. A kernel of your own is a
subclass with one method, `__call__(x, z)` for two points, written in jax.numpy; or a function of two points, by
`Pairwise`.
"""

from quantprop.kernels.base import (
    LENGTHSCALE,
    VARIANCE,
    Bounds,
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Matrix,
    Pairs,
    Periodic,
    Point,
    Points,
    Power,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    Sum,
    White,
    squared_distances,
)
from quantprop.kernels.pairwise import Pairwise, from_tinygp
from quantprop.kernels.series import IntegratedWiener, Oscillation

__all__ = [
    "LENGTHSCALE",
    "VARIANCE",
    "Bounds",
    "Constant",
    "IntegratedWiener",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Matrix",
    "Oscillation",
    "Pairs",
    "Pairwise",
    "Periodic",
    "Point",
    "Points",
    "Power",
    "Product",
    "RationalQuadratic",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "White",
    "from_tinygp",
    "squared_distances",
]
