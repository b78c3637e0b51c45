"""Corrections of a Gaussian posterior, from the cumulants of the tilted densities (docs/background/corrections.md)."""
