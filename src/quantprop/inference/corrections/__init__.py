"""Corrections of a Gaussian posterior, from the cumulants of the tilted densities: see docs/background/corrections.md."""
