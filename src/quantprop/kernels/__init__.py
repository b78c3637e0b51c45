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

from quantprop.kernels.additive import Additive as Additive
from quantprop.kernels.base import LENGTHSCALE as LENGTHSCALE
from quantprop.kernels.base import VARIANCE as VARIANCE
from quantprop.kernels.base import Bounds as Bounds
from quantprop.kernels.base import Column as Column
from quantprop.kernels.base import Columns as Columns
from quantprop.kernels.base import Kernel as Kernel
from quantprop.kernels.base import Matrix as Matrix
from quantprop.kernels.base import Pairs as Pairs
from quantprop.kernels.base import Point as Point
from quantprop.kernels.base import Points as Points
from quantprop.kernels.base import Power as Power
from quantprop.kernels.base import Product as Product
from quantprop.kernels.base import Sum as Sum
from quantprop.kernels.categories import Categories as Categories
from quantprop.kernels.categories import CentredFactor as CentredFactor
from quantprop.kernels.categories import Coregion as Coregion
from quantprop.kernels.categories import Factor as Factor
from quantprop.kernels.categories import NewLevelWarning as NewLevelWarning
from quantprop.kernels.combinations import Difference as Difference
from quantprop.kernels.combinations import PerClass as PerClass
from quantprop.kernels.combinations import PerParameter as PerParameter
from quantprop.kernels.derivatives import Derivatives as Derivatives
from quantprop.kernels.grammar import TermError as TermError
from quantprop.kernels.pairwise import Pairwise as Pairwise
from quantprop.kernels.pairwise import from_tinygp as from_tinygp
from quantprop.kernels.simple import Constant as Constant
from quantprop.kernels.simple import Linear as Linear
from quantprop.kernels.simple import Lines as Lines
from quantprop.kernels.simple import White as White
from quantprop.kernels.standardised import RankNormal as RankNormal
from quantprop.kernels.standardised import Standardised as Standardised
from quantprop.kernels.stationary import Matern12 as Matern12
from quantprop.kernels.stationary import Matern32 as Matern32
from quantprop.kernels.stationary import Matern52 as Matern52
from quantprop.kernels.stationary import RationalQuadratic as RationalQuadratic
from quantprop.kernels.stationary import SquaredExponential as SquaredExponential
from quantprop.kernels.stationary import Stationary as Stationary
from quantprop.kernels.stationary import squared_distances as squared_distances
from quantprop.kernels.structure import columns_of as columns_of
from quantprop.kernels.structure import groups_of as groups_of
from quantprop.kernels.structure import located as located
from quantprop.kernels.structure import summands as summands
from quantprop.kernels.temporal import IntegratedWiener as IntegratedWiener
from quantprop.kernels.temporal import Oscillation as Oscillation
from quantprop.kernels.temporal import Periodic as Periodic
from quantprop.kernels.terms import Terms as Terms
from quantprop.kernels.writing import written as written
