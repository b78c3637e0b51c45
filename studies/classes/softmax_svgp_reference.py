"""The bound of an SVGP with a softmax likelihood at given numbers, by GPyTorch, for `softmax_svgp check`:

    python studies/classes/softmax_svgp_reference.py tests/priors/softmax_svgp.json

in an environment with gpytorch. Marginals and divergence are exact, the expected log-probability is from 200,000 draws.
"""

import json
import sys

import gpytorch
import numpy as np
import torch

torch.set_default_dtype(torch.float64)
ROWS, CLASSES, POINTS, FEATURES, VARIANCE, LENGTHSCALE = 40, 4, 7, 2, 1.7, 0.9
rng = np.random.default_rng(0)
x, z = (rng.uniform(-2, 2, (n, FEATURES)).round(6) for n in (ROWS, POINTS))
y = rng.integers(0, CLASSES, ROWS)
mean = rng.normal(size=(CLASSES, POINTS)).round(6)
below = np.tril(0.2 * rng.normal(size=(CLASSES, POINTS, POINTS)), -1)
lower = (below + np.exp(0.3 * rng.normal(size=(CLASSES, POINTS, 1))) * np.eye(POINTS)).round(6)


class SVGP(gpytorch.models.ApproximateGP):
    def __init__(self):
        q = gpytorch.variational.CholeskyVariationalDistribution(POINTS, batch_shape=torch.Size([CLASSES]))
        with torch.no_grad():
            q.variational_mean.copy_(torch.tensor(mean))
            q.chol_variational_covar.copy_(torch.tensor(lower))
        one = gpytorch.variational.VariationalStrategy(
            self, torch.tensor(z), q, learn_inducing_locations=False, jitter_val=1e-6 * VARIANCE
        )
        super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(one, num_tasks=CLASSES))
        one.variational_params_initialized.fill_(1)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.covar_module.outputscale = VARIANCE
        self.covar_module.base_kernel.lengthscale = LENGTHSCALE

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


model = SVGP()
softmax = gpytorch.likelihoods.SoftmaxLikelihood(num_features=CLASSES, num_classes=CLASSES, mixing_weights=False)
torch.manual_seed(0)
with torch.no_grad(), gpytorch.settings.num_likelihood_samples(200_000):
    latent = model(torch.tensor(x))
    told = {
        "x": x.tolist(), "y": y.tolist(), "z": z.tolist(), "mean": mean.tolist(), "lower": lower.tolist(),
        "variance": VARIANCE, "lengthscale": LENGTHSCALE, "means": latent.mean.numpy().T.tolist(),
        "variances": latent.variance.numpy().T.tolist(),
        "divergence": float(model.variational_strategy.kl_divergence()),
        "expected": float(softmax.expected_log_prob(torch.tensor(y), latent).sum()),
        "made_by": f"gpytorch {gpytorch.__version__}, torch {torch.__version__}, 200,000 draws",
    }  # fmt: skip
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(told, file)
