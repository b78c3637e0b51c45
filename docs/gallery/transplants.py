"""Survival times, some of them censored

69 heart transplants at Stanford. For patients who were alive at the end only a lower bound of the survival time
is known: rows are (lower, upper), and the upper end is infinite.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

from quantprop import GaussianProcessRegressor

table = sm.datasets.heart.load_pandas().data
age, days = table[["age"]].to_numpy(), np.maximum(table["survival"].to_numpy(), 0.5)
died = table["censors"].to_numpy() == 1
y = np.column_stack([days, np.where(died, days, np.inf)])

model = GaussianProcessRegressor("se(0)", likelihood="weibull", mean="constant", method="ep").fit(age, y)
grid = np.linspace(20.0, 60.0, 60)[:, None]
low, median, high = model.predict_quantiles(grid, [0.25, 0.5, 0.75]).T
print(f"{died.sum()} deaths, {(~died).sum()} censored")
print(f"median survival {median[grid[:, 0] >= 30][0]:.0f} days at 30, {median[-1]:.0f} at 60")

figure, ax = plt.subplots()
ax.semilogy(grid, median, label="median")
ax.fill_between(grid[:, 0], low, high, alpha=0.3, label="half of the patients")
ax.plot(age[died], days[died], "k.", label="died")
ax.plot(age[~died], days[~died], "k^", markerfacecolor="none", label="alive when last seen")
ax.set(xlabel="age at transplant", ylabel="days")
ax.legend()
plt.show()
