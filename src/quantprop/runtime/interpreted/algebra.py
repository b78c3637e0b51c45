"""JAX's primitives of linear algebra, by NumPy's and SciPy's BLAS and LAPACK."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quantprop.runtime.interpreted.entrywise import Function, Made


def _dot_general(dimension_numbers: Any, **_: Any) -> Function:
    (left, right), (left_batch, right_batch) = dimension_numbers
    plain = not left_batch and (tuple(left), tuple(right)) == ((1,), (0,))

    def product(x: Any, y: Any) -> Any:
        if plain and x.ndim == 2 and y.ndim <= 2:
            return x @ y
        rows = [axis for axis in range(x.ndim) if axis not in left and axis not in left_batch]
        columns = [axis for axis in range(y.ndim) if axis not in right and axis not in right_batch]
        batch, summed = [x.shape[axis] for axis in left_batch], math.prod(x.shape[axis] for axis in left)
        shape = [x.shape[axis] for axis in rows], [y.shape[axis] for axis in columns]
        a = x.transpose([*left_batch, *rows, *left]).reshape(*batch, math.prod(shape[0]), summed)
        b = y.transpose([*right_batch, *right, *columns]).reshape(*batch, summed, math.prod(shape[1]))
        return (a @ b).reshape((*batch, *shape[0], *shape[1]))

    return product


def _each(function: Function) -> Function:
    """A function of matrices, for stacks of them too."""

    def of_stack(*stacks: Any) -> Any:
        if stacks[0].ndim == 2:
            return function(*stacks)
        lead = stacks[0].shape[:-2]
        flat = [stack.reshape(-1, *stack.shape[-2:]) for stack in stacks]
        whole = np.stack([function(*matrices) for matrices in zip(*flat, strict=True)])
        return whole.reshape(*lead, *whole.shape[1:])

    return of_stack


def _cholesky(**_: Any) -> Function:
    def root(a: Any) -> Any:
        try:
            return np.linalg.cholesky(a)
        except np.linalg.LinAlgError:  # which XLA answers so
            return np.full_like(a, np.nan)

    return _each(root)


def _triangular_solve(left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool, **_: Any) -> Function:
    import scipy.linalg  # when it is needed

    solved: Any = scipy.linalg.get_blas_funcs("trsm", dtype=np.float64)
    # It takes matrices by columns: what it is given and returns here are transposes.
    how = {"side": int(left_side), "lower": int(not lower), "trans_a": int(transpose_a), "diag": int(unit_diagonal)}
    return _each(lambda a, b: solved(1.0, a.T, b.T, **how).T)


ALGEBRA: dict[str, Made] = {
    "dot_general": _dot_general,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
