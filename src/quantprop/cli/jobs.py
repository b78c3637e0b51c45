"""Fits of many processes and devices, and of many hours: what `fit` does around learning."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import typer

SEVERAL = (
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_SIZE",
)  # set by launchers that jax.distributed knows, to the number of tasks


def joined(coordinator: str | None, processes: int | None, process: int | None) -> bool:
    """Become a process of a job where options or the environment say so; whether it is the first, which speaks."""
    told = (coordinator, processes, process)
    if any(part is not None for part in told) and None in told:
        raise typer.BadParameter("--coordinator, --processes and --process go together: give all three, or none")
    launched = any(int(os.environ.get(name, "1")) > 1 for name in SEVERAL)
    if coordinator is None and "JAX_COORDINATOR_ADDRESS" not in os.environ and not launched:
        return True
    import jax

    from quantprop.runtime.jobs import join

    join(*told)
    return jax.process_index() == 0


@contextmanager
def every_device(divisible: bool) -> Iterator[None]:
    """All devices, for a process whose rows can be divided among them."""
    from quantprop import sharded

    with sharded() if divisible else nullcontext():
        yield


def check_minutes(checkpoint: Path | None, minutes: float | None) -> None:
    """Refuse a time between checkpoints where there are none."""
    if checkpoint is None and minutes is not None:
        raise typer.BadParameter("it is the time between two checkpoints: give --checkpoint", param_hint="--minutes")


def kept_search(checkpoint: Path | None, minutes: float | None) -> AbstractContextManager[None]:
    """A search that is written to a file on its way, and goes on from one."""
    from quantprop import checkpointed

    if checkpoint is None:
        return nullcontext()
    return checkpointed(checkpoint) if minutes is None else checkpointed(checkpoint, minutes)
