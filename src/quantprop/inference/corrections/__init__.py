"""What a Gaussian posterior leaves out, from the cumulants of the tilted densities: see docs/corrections.md."""
