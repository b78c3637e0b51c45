"""Ordered categories

How women rated their marriage, from 1 (very poor) to 5 (very good), by years married (Fair 1978). `Ordinal` uses the
order of the ratings and not the distances between them. Every fortieth row is enough for a plot.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

from quantprop import GaussianProcessRegressor

table = sm.datasets.fair.load_pandas().data.iloc[::40]
years, rating = table[["yrs_married"]].to_numpy(), table["rate_marriage"].to_numpy()

model = GaussianProcessRegressor("se(0)", likelihood="ordinal", method="ep").fit(years, rating)
grid = np.linspace(0.5, 23.0, 60)[:, None]
probability = model.predict_proba(grid)
print("P(very good) after half a year and after 23:", probability[[0, -1], -1].round(2).tolist())

figure, ax = plt.subplots()
levels = np.unique(rating)  # nobody in the sample gave a 1
colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(levels)))
ax.stackplot(grid[:, 0], probability.T, colors=colours, labels=[f"rated {level:.0f}" for level in levels])
ax.set(xlabel="years married", ylabel="probability", xlim=(0.5, 23.0), ylim=(0.0, 1.0))
ax.legend(loc="lower right")
plt.show()
