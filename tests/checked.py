"""Types and shapes of the package's functions, checked as they are called: jaxtyping's annotations by beartype.

`make test-all` runs all tests so, and with strict promotion of types (QUANTPROP_CHECKED=1, see tests/conftest.py).
The default tests run the representatives below, in a process of their own: `python -m checked` from the folder tests.
"""

from __future__ import annotations

import jax
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float, as type checkers have it
CORE = ("core.gaussian", "core.sites", "kernels", "methods", "priors", "inference.engine", "learning.implicit")


def install(*modules: str) -> None:
    """Check what is imported of these modules from here on, and let JAX promote no type by itself."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    install_import_hook([f"quantprop.{name}" for name in modules] or ["quantprop"], "checked.check")


def main() -> None:
    """Every backend infers and predicts; and a covariance that is not square is refused."""
    install(*CORE)
    import numpy as np
    from jaxtyping import TypeCheckError

    from quantprop import Dense, Inducing, Markov, Model, infer, kernels, likelihoods
    from quantprop.priors import DensePrior

    x = np.linspace(-2.0, 2.0, 20)[:, None]
    y = np.sign(np.sin(3.0 * x[:, 0]))
    for process in (Dense(), Markov(), Inducing(5)):
        solution = infer(Model(kernels.Matern32(), likelihoods.Probit(), process=process), x, y, "laplace")
        print(process, solution.predict(x[:3]).mean.shape)
    try:
        DensePrior(np.zeros(3), np.zeros((3, 2)))
    except TypeCheckError:
        print("refused")


if __name__ == "__main__":
    main()
