"""Two classes and a map of their probability

Males and females of two species of rock crab, from two lengths. `class_probability` maps the probability of one
class; the line is where both are equally likely.
"""

import matplotlib.pyplot as plt

from quantprop import GaussianProcessClassifier, datasets, plots

data = datasets.load("crabs")
columns = [data.feature_names.index("RW"), data.feature_names.index("CL")]
X, y = data.X[:, columns], data.y  # rear width and carapace length, in mm; the sex, coded −1 and 1

model = GaussianProcessClassifier("ard", method="qp").fit(X, y)
print(model.solution_.status.reason)
print(f"training accuracy {model.score(X, y):.2f}")

ax = plots.class_probability(model, X, y, points=60)
ax.set(xlabel="rear width, mm", ylabel="carapace length, mm")
plt.show()
