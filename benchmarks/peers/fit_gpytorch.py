"""GPyTorch: a full Gaussian by variational Bayes (inducing points at the data), 1,000 steps of Adam."""

import gpytorch
import torch
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from measured import Fit, from_probability, report

STEPS = 1000
RATE = 0.1

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Latent(gpytorch.models.ApproximateGP):
    def __init__(self, x):
        distribution = CholeskyVariationalDistribution(len(x))
        super().__init__(VariationalStrategy(self, x, distribution, learn_inducing_locations=False))
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.kernel.outputscale, self.kernel.base_kernel.lengthscale = 1.0, 1.0

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def fit(x, y, method):
    inputs, labels = torch.as_tensor(x), torch.as_tensor((y > 0).astype(float))
    model, probit = Latent(inputs), gpytorch.likelihoods.BernoulliLikelihood()
    bound = gpytorch.mlls.VariationalELBO(probit, model, num_data=len(y))
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    for _ in range(STEPS):
        adam.zero_grad()
        loss = -bound(model(inputs), labels)
        loss.backward()
        adam.step()
    model.eval()

    def probability(new):
        with torch.no_grad():
            return probit(model(torch.as_tensor(new))).mean.numpy()

    return Fit(
        objective=float(loss.detach()) * len(y),
        objective_name="-ELBO",
        log_prob=from_probability(probability),
        kernel=(float(model.kernel.outputscale), float(model.kernel.base_kernel.lengthscale)),
        evaluations=STEPS,
        status=f"{STEPS} steps of Adam at rate {RATE}",
    )


if __name__ == "__main__":
    report(fit)
