"""Groups: a panel of firms

Investment of eleven firms over twenty years (Grunfeld 1950). `group(firm)` is a random intercept per firm, as
in a mixed model; the effect of the firm's value is linear.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

from quantprop import GaussianProcessRegressor, plots

table = sm.datasets.grunfeld.load_pandas().data
table["value"] = np.log(table["value"])
y = np.log(table["invest"].to_numpy())

model = GaussianProcessRegressor("linear(value) + group(firm)", mean="constant", method="ep")
model.fit(table[["value", "firm"]], y)
slope = model.solution_.fixed_effects()["linear(value)"]
print(f"elasticity of investment: {slope.estimate:.2f} ({slope.lower:.2f} to {slope.upper:.2f})")

ax = plots.effect(model, "group(firm)")
ax.set(title="deviation of each firm, log investment")
plt.gcf().set_size_inches(7.0, 4.5)
plt.show()
