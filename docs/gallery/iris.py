"""Three classes in one model

A latent function per species, learned together: the probabilities come from one model and need no
normalisation. Colours are paler where the most probable class is less certain.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from quantprop import GaussianProcessClassifier, plots

iris = load_iris()
X, y = iris.data[:, 2:], iris.target_names[iris.target]  # length and width of the petals
train = slice(None, None, 3)

model = GaussianProcessClassifier(multi_class="joint", method="ep").fit(X[train], y[train])
print(f"accuracy on the other rows {model.score(X[1::3], y[1::3]):.2f}")

ax = plots.class_regions(model, X[train], y[train], points=40)
ax.set(xlabel="petal length, cm", ylabel="petal width, cm")
plt.show()
