"""Uncertain hyperparameters

Every third year of the mining data. 38 counts leave the time over which the rate changes uncertain: `integrate`
averages over its posterior, and the plot compares it with the single estimate of `fit`.
"""

import matplotlib.pyplot as plt
import numpy as np

from quantprop import Model, datasets, fit, integrate, kernels, likelihoods, plots

data = datasets.load("mining")
X, y = data.X[::3], data.y[::3]
model = Model(kernels.SquaredExponential(1.0, 20.0), likelihoods.Poisson(), mean=float(np.log(y.mean())))
fitted = fit(model, X, y, method="ep")
integrated = integrate(fitted)
estimate = fitted.hyperparameters["kernel.lengthscale"]
posterior = integrated.parameters["kernel.lengthscale"]
print(f"lengthscale: estimate {estimate:.0f} years, 95 % interval {posterior.lower:.0f} to {posterior.upper:.0f}")

ax = plots.hyperparameter(integrated, "kernel.lengthscale", point=estimate)
ax.set(xlabel="lengthscale, years")
plt.show()
