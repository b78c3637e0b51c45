"""Are the probabilities calibrated?

Five-fold cross-validation on the Pima data, all folds fitted in one batch by `fit_many`. Points on the diagonal
mean that events given probability p occurred with frequency p.
"""

import matplotlib.pyplot as plt
import numpy as np

from quantprop import Model, datasets, fit_many, kernels, likelihoods, plots

data = datasets.load("pima")
X, y = ((data.X - data.X.mean(0)) / data.X.std(0))[:250], data.y[:250]
fold = np.random.default_rng(0).permutation(len(y)) % 5
train = [fold != k for k in range(5)]

model = Model(kernels.SquaredExponential(lengthscale=4.0), likelihoods.Probit())
fits = fit_many(model, [X[rows] for rows in train], [y[rows] for rows in train], method="qp")
probability = np.empty(len(y))
for rows, fitted in zip(train, fits, strict=True):
    probability[~rows] = np.exp(fitted.solution.predict_y(X[~rows]).log_prob(1))
score = -np.mean(np.log(np.where(y > 0, probability, 1.0 - probability)))
print(f"negative log density per held-out row {score:.3f}")

ax = plots.reliability(probability, y, bins=8)
ax.set(xlabel="predicted probability of diabetes", ylabel="observed frequency")
plt.show()
