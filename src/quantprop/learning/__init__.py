"""Learning hyperparameters: objectives, their gradients, and searches."""
