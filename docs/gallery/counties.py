"""Rates with exposure

Breast cancer deaths in counties of the United States, every third of 301. `exposure` makes f the logarithm of a
rate per person, so that small counties with few deaths count less than large ones. The rate turns out not to
depend on the size.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

from quantprop import GaussianProcessRegressor

table = sm.datasets.cancer.load_pandas().data.iloc[::3]
size, deaths = np.log10(table["population"].to_numpy())[:, None], table["cancer"].to_numpy()
people = table["population"].to_numpy()

model = GaussianProcessRegressor("se(0)", likelihood="negative-binomial", mean="constant", method="ep")
model.fit(size, deaths, exposure=people)
grid = np.linspace(size.min(), size.max(), 50)[:, None]
latent = model.solution_.predict(grid)
rate, error = np.exp(latent.mean), np.sqrt(latent.variance)
print(f"deaths per 1,000: {1e3 * rate[0]:.1f} in the smallest county, {1e3 * rate[-1]:.1f} in the largest")

figure, ax = plt.subplots()
ax.plot(size, 1e3 * deaths / people, ".", color="0.6", label="observed")
ax.plot(grid, 1e3 * rate, label="posterior")
ax.fill_between(grid[:, 0], 1e3 * rate * np.exp(-1.64 * error), 1e3 * rate * np.exp(1.64 * error), alpha=0.3)
ax.set(xlabel="population, log10", ylabel="deaths per 1,000")
ax.legend()
plt.show()
