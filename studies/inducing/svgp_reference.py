"""The optimum of SVGP's bound on a small problem, by GPyTorch.

    python studies/inducing/svgp_reference.py tests/priors/svgp.json

Needs torch and gpytorch, which the project itself does not use.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gpytorch  # pyright: ignore[reportMissingImports]
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

VARIANCE, LENGTHSCALE, JITTER = 1.5, 0.8, 1e-8
NODES, ROUNDS = 80, 40


class Latent(gpytorch.models.ApproximateGP):
    """A zero mean, Matérn-3/2, and a full Gaussian over the values at the points."""

    def __init__(self, z: torch.Tensor) -> None:
        over = gpytorch.variational.CholeskyVariationalDistribution(len(z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, z, over, learn_inducing_locations=False))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))
        self.covar_module.outputscale, self.covar_module.base_kernel.lengthscale = VARIANCE, LENGTHSCALE

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Probit(gpytorch.likelihoods.BernoulliLikelihood):
    """With log Φ to machine precision: GPyTorch's own approximation of it moves this bound by 1e-3."""

    def expected_log_prob(self, observations, function_dist, *args, **kwargs):
        signs = 2.0 * observations - 1.0
        return self.quadrature(lambda f: torch.special.log_ndtr(signs * f), function_dist)


def main(file: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, (40, 1)), axis=0)
    y = np.where(np.sin(2 * x[:, 0]) + 0.5 * rng.normal(size=40) > 0, 1.0, -1.0)
    z, new = np.linspace(-2.8, 2.8, 7)[:, None], np.linspace(-3, 3, 5)[:, None]
    torch.set_default_dtype(torch.float64)
    with (
        gpytorch.settings.num_gauss_hermite_locs(NODES),
        gpytorch.settings.variational_cholesky_jitter(double_value=JITTER),
        gpytorch.settings.cholesky_jitter(double_value=JITTER),
    ):
        model, likelihood = Latent(torch.tensor(z)), Probit()
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
        inputs, labels = torch.tensor(x), torch.tensor((y + 1) / 2)
        model.train()
        model(inputs)  # sets q(u) to the prior
        search = torch.optim.LBFGS(
            list(model.variational_parameters()), max_iter=500, tolerance_grad=1e-12, tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )  # fmt: skip

        def loss() -> torch.Tensor:
            search.zero_grad()
            value = -len(y) * bound(model(inputs), labels)
            value.backward()
            return value

        for _ in range(ROUNDS):
            value = search.step(loss)
        model.eval()
        with torch.no_grad():
            there = model(torch.tensor(new))
    told = {
        "x": x.tolist(), "y": y.tolist(), "z": z.tolist(), "new": new.tolist(), "variance": VARIANCE,
        "lengthscale": LENGTHSCALE, "jitter": JITTER / VARIANCE, "bound": -float(value.detach()),
        "mean": there.mean.tolist(), "covariance": there.covariance_matrix.tolist(),
        "versions": {"torch": torch.__version__, "gpytorch": gpytorch.__version__},
    }  # fmt: skip
    file.write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
