"""Skeleton of a kernel: Brownian motion. Copy it to a file of src/quantprop/kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels import Kernel


class Brownian(Kernel):
    """Brownian motion from f = 0 at x = 0: variance · min(x, x'), for one column of positive inputs."""

    variance: float = 1.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"variance": (1e-5, 1e5)}

    def __call__(self, x: Float[Array, " d"], z: Float[Array, " d"]) -> Float[Array, ""]:
        """The covariance of two points; matrices follow by vmap, unless `cross` has a faster formula."""
        return self.variance * jnp.minimum(x[0], z[0])
