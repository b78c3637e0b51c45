"""Regression with outliers

Loss of ammonia from a chemical plant on 21 days, with at least three unusual ones (Brownlee 1965). Student-t
noise gives them little weight, and their leave-one-out densities are the lowest. The total density does not
favour it on so few days.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

from quantprop import GaussianProcessRegressor, Parameter, likelihoods

table = sm.datasets.stackloss.load_pandas().data
X, y = table[["AIRFLOW", "WATERTEMP"]], table["STACKLOSS"].to_numpy()
noises = {"gaussian": "gaussian", "student-t": likelihoods.StudentT(df=Parameter(4.0, fixed=True))}
fits = {}
for name, noise in noises.items():
    terms = "linear(AIRFLOW) + linear(WATERTEMP)"
    fits[name] = GaussianProcessRegressor(terms, likelihood=noise, mean="constant", method="ep").fit(X, y)
    print(f"{name}: noise {fits[name].likelihood_.scale:.1f}, leave-one-out {fits[name].solution_.loo.sum():.1f}")
surprising = np.argsort(fits["student-t"].solution_.loo)[:3]
print("days that surprise most:", sorted((surprising + 1).tolist()))

figure, ax = plt.subplots()
for (name, model), marker in zip(fits.items(), "x.", strict=True):
    ax.plot(np.arange(1, 22), y - model.predict(X), marker, label=f"{name} noise")
ax.axhline(0.0, color="0.5", linewidth=0.8)
ax.set(xlabel="day", ylabel="residual of the loss")
ax.legend()
plt.show()
