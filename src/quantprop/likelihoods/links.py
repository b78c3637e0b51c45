"""Links from f to a positive rate, and from f to a probability."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

RateLink = Literal["exp", "square", "softplus"]
RATE_LINKS = ("exp", "square", "softplus")


def check_link(link: str, allowed: tuple[str, ...], owner: str) -> None:
    """Raise unless `link` is one of `allowed`."""
    if link not in allowed:
        raise ValueError(f"{owner}: link must be one of {', '.join(allowed)}; got {link!r}")


def log_rate(link: RateLink, f):
    """log g(f) for g = exp, square, softplus."""
    if link == "exp":
        return f
    if link == "square":
        return 2.0 * jnp.log(jnp.abs(f))
    near = jnp.maximum(f, -30.0)
    return jnp.where(f < -30.0, f - 0.5 * jnp.exp(jnp.minimum(f, -30.0)), jnp.log(jax.nn.softplus(near)))


def rate(link: RateLink, f):
    """g(f)."""
    if link == "exp":
        return jnp.exp(f)
    if link == "square":
        return f * f
    return jax.nn.softplus(f)


def inverse_rate(link: RateLink, value):
    """The f (for the square link the positive one) with g(f) = value > 0."""
    if link == "exp":
        return jnp.log(value)
    if link == "square":
        return jnp.sqrt(value)
    return value + jnp.log(-jnp.expm1(-value))
