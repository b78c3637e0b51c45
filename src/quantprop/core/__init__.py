"""Records, Gaussians, parameters, sites and checks of arrays: what everything else is written in."""
