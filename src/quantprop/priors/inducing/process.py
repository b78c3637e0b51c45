"""A Gaussian process by its values at inducing points: `Inducing`."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.parameters import Parameter, is_parameter
from quantprop.core.records import field
from quantprop.kernels import Kernel
from quantprop.priors.base import Cost, Process
from quantprop.priors.inducing.choice import count_of, points_for
from quantprop.priors.inducing.message import Message
from quantprop.priors.inducing.prior import InducingPrior
from quantprop.priors.inducing.rows import Basis, chunk_bytes, means_given
from quantprop.runtime.arguments import BOOLEAN, is_number, whole
from quantprop.runtime.memory import SMALL, capacity
from quantprop.runtime.mesh import divided, rows_in_one_memory

NUMBERS_PER_ROW = 160  # float64: sweeps, their acceleration and the equation of QP's gradient
CHUNKS = 12  # chunks of V alive at the peak of a gradient
CACHED_FRACTION = 0.2  # V and L_B⁻¹ V are recomputed by chunks if one would take more of the memory


class Inducing(Process):
    """The process through its values at M inducing points, for many rows: O(n M²) operations per sweep.

    Each row retains the residual variance that the points do not explain. Of points chosen from the data, each level of
    a term such as `Categories` gets one, so that its effect is represented exactly.

    Args:
        points: Number of points, chosen from the data, or an array of inputs, one row per point.
        learn: If True, the points are learned together with the hyperparameters.
        seed: Seed of the choice of points.
        jitter: Variance, relative to the process's, of a noise in the values at the points, which keeps their
            covariance positive definite.
        message: What earlier rows contributed at the points, as `partial_fit` leaves it; not to be set by users.
        neighbours: Number of nearest rows that each row sees of what the points leave unexplained; 0 for none.

    >>> import numpy as np
    >>> from quantprop import Inducing, Model, infer, kernels, likelihoods
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(20))
    >>> infer(model, X, np.sign(np.sin(2 * X[:, 0])), "ep").converged
    True
    """

    from_data: ClassVar[bool] = True
    takes_further_rows: ClassVar[bool] = True
    copies_apart: ClassVar[bool] = True  # by the variance that the points leave unexplained
    divisible: ClassVar[bool] = True

    points: Any = 512
    learn: bool = field(default=False, static=True)
    seed: int = field(default=0, static=True)
    jitter: float = field(default=1e-9, static=True)
    message: Message | None = None  # of earlier rows, which `Solution.as_prior` leaves
    neighbours: int = field(default=0, static=True)

    def __check_init__(self) -> None:
        points = self._plain
        BOOLEAN.check("Inducing: learn", self.learn)
        whole(0).check("Inducing: seed", self.seed)
        whole(0).check("Inducing: neighbours", self.neighbours)
        if not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"Inducing: jitter must lie in [0, 1); got {self.jitter}")
        if np.ndim(points) == 0:
            if not (is_number(points) and float(points).is_integer() and points >= 1):
                raise ValueError(f"Inducing: points must be an integer of at least 1, or an array; got {points}")
            return
        if np.iscomplexobj(points):
            raise TypeError("Inducing: points must be real numbers; got complex ones")
        array = np.asarray(points, dtype=np.float64)
        if array.ndim != 2 or not array.size:
            raise ValueError(f"Inducing: points must have one row per point, as X has; got shape {array.shape}")
        if not np.isfinite(array).all():
            row = int(np.argmin(np.isfinite(array).all(axis=1)))
            raise ValueError(f"Inducing: points[{row}] holds NaN or infinity; leave that row out")
        if len(np.unique(array, axis=0)) < len(array):
            raise ValueError("Inducing: two rows of points are equal; pass each once: np.unique(points, axis=0)")

    @property
    def _plain(self) -> Any:
        """The points, or their number, without what is declared of a Parameter."""
        return self.points.value if is_parameter(self.points) else self.points

    @property
    def count(self) -> int:
        """The number of points."""
        return count_of(self._plain)

    def settled(self, kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Inducing:
        """The process with points chosen from the rows of x (learned if declared so); points of a message stay."""
        if self.message is not None:
            return self
        array = points_for(kernel, self._plain, x, self.seed)
        points = self.points if is_parameter(self.points) else Parameter(array) if self.learn else array
        return Inducing(points, self.learn, self.seed, self.jitter)

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return x

    def basis(self, kernel: Kernel) -> Basis:
        """The map from values at the points to values at inputs."""
        return Basis(kernel, jnp.asarray(self.points), jnp.ones(()), self.jitter)

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Float[Array, "n d"]) -> InducingPrior:
        n = len(prepared)
        basis, before = self.basis(kernel), None
        if self.message is not None:
            before = self.message.belief(basis.values())
            mean = mean + means_given(basis, before.centre, prepared)
        mean, x, share = divided((mean, prepared, jnp.ones(n)))
        return InducingPrior(mean, basis, x, share, before, None, self._holds(rows_in_one_memory(n)), self.learn)

    def after(self, message: Message) -> Inducing:
        """The process after earlier rows; its points are fixed."""
        return Inducing(self._plain, False, self.seed, self.jitter, message)

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Float[Array, "m k"]:
        return self.cross_of(kernel, kernel, x, new)

    def cross_of(self, kernel: Kernel, term: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Any:
        basis = self.basis(kernel)
        return basis.whitening() @ term.cross(basis.z, new)

    def _holds(self, n: int) -> bool:
        size = 8 * n * self.count
        if size <= SMALL:
            return True
        have = capacity()
        return have is None or size <= CACHED_FRACTION * have

    def cost(self, n: int) -> Cost:
        m = self.count
        kept = 2 * 8 * n * m if self._holds(n) else 0
        columns = 8 * n * NUMBERS_PER_ROW
        peak = kept + columns + CHUNKS * min(8 * n * m, chunk_bytes()) + 8 * 8 * m * m
        parts = f"{NUMBERS_PER_ROW} numbers per row" + (f", and {n} × {m} numbers" if kept else "")
        return Cost(peak, columns, 4.0 * n * m**2, f"a prior by {m} inducing points over {n} rows", parts)
