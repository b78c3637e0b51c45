"""A series, its gap and its future

Yearly volume of the Nile. `Markov()` computes the exact posterior in linear time. Twenty years were removed: a
row of weight 0 is a missing value. Intervals are wider in the gap and beyond the end.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

from quantprop import Markov, Model, Parameter, fit, kernels, likelihoods, plots

table = sm.datasets.nile.load_pandas().data
year, volume = table["year"].to_numpy(), table["volume"].to_numpy() / 100.0
seen = (year < 1920) | (year >= 1940)

model = Model(kernels.Matern32(4.0, 20.0), likelihoods.Gaussian(1.0), mean=Parameter(9.0), process=Markov())
fitted = fit(model, year[:, None], volume, "ep", weights=seen.astype(float))
gap = fitted.solution.predict_y(year[~seen][:, None])
inside = (gap.quantile(0.05) <= volume[~seen]) & (volume[~seen] <= gap.quantile(0.95))
print(f"90 % intervals cover {inside.sum()} of the {len(inside)} years in the gap")

times = np.arange(1871.0, 1991.0)
ax = plots.forecast(times, fitted.solution.predict_y(times[:, None]), year[seen], volume[seen])
ax.set(xlabel="year", ylabel="volume, 10¹⁰ m³")
plt.show()
