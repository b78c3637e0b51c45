"""Hyperparameters integrated: their posterior around the optimum, and the mixture of posteriors that it weights."""
