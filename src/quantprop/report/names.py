"""Methods and scores as people read them."""

METHODS = {"qp": "QP", "ep": "EP", "vb": "VB", "laplace": "Laplace", "power-ep": "power EP"}
SCORES = {
    "error": "test error", "rmse": "RMSE", "mae": "MAE", "ntll": "NTLL", "brier": "Brier", "calibration": "calibration",
}  # fmt: skip


def called(method: str) -> str:
    """The name of a method."""
    return METHODS[method]
