"""Fallbacks if sweeps do not converge: Newton's method, and continuation from an easy problem to the one asked.

A fixed point of the sites that sweeps diverge from, or circle, is still a root of R(s) − s. Newton's method finds it
from nearby. From afar it is reached along a path: a family of problems with a parameter t in (0, 1], easy where t is
small and the problem itself at t = 1. The fixed points (s, t) form a curve, which is followed by its arc length and
not by t, so that it may turn back (Allgower and Georg 2003, Introduction to Numerical Continuation Methods,
chapter 6): a predictor step along the tangent, then Newton's method as the corrector. A curve ends short of t = 1 only
where a cavity or the posterior becomes improper, or where sites diverge.

Coordinates are the scaled ones of `implicit`: p = σ(δν − μ δτ), q = σ² δτ of each datum, stacked.
"""

from quantprop.inference.continuation.following import by_newton, continued

__all__ = ["by_newton", "continued"]
