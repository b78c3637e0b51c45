"""Effects of single features

Progression of diabetes a year after three measurements. The kernel is a sum, so that each feature has an effect
that can be drawn with its uncertainty.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from quantprop import GaussianProcessRegressor, plots

data = load_diabetes(as_frame=True, scaled=False)
X, y = data.data[["bmi", "bp", "s5"]].iloc[:150], data.target.iloc[:150]

model = GaussianProcessRegressor("se(bmi) + linear(bp) + se(s5)", mean="constant", method="ep").fit(X, y)
effects = model.solution_.terms(model.X_train_)
for name, fraction in effects.shares.items():
    if name.startswith(("se(", "linear(")):
        print(f"{name}: {fraction:.2f} of the variance explained")

figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.0), sharey=True, layout="constrained")
plots.effects(model, axes=axes)
plt.show()
