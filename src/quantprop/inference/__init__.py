"""Inference at fixed hyperparameters: sweeps to the fixed point, solutions, predictions."""
