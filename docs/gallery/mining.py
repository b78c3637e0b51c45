"""Counts over time

Disasters in British coal mines by year. The rate is exp(f), so intervals are of counts: integers, never
negative, and wider where the rate is higher.
"""

import matplotlib.pyplot as plt
import numpy as np

from quantprop import GaussianProcessRegressor, datasets, plots

data = datasets.load("mining")
model = GaussianProcessRegressor("se(0)", likelihood="poisson", mean="constant", method="ep").fit(data.X, data.y)
rate = model.predict(np.array([[1860.0], [1950.0]]))
print(f"expected disasters: {rate[0]:.1f} in 1860, {rate[1]:.1f} in 1950")
print("90 % interval in 1860:", model.predict_quantiles([[1860.0]], [0.05, 0.95])[0].astype(int).tolist())

ax = plots.posterior(model, data.X, data.y)
ax.set(xlabel="year", ylabel="disasters")
plt.show()
