"""Workers of a Dask cluster that is there already, by the address of its scheduler."""

from __future__ import annotations

import os
from dataclasses import dataclass

from quantprop.experiments.pool import ENVIRONMENT
from quantprop.experiments.sweep import Done, Results, Unit, done

RETRIES = 3  # of a unit that raises; a unit whose worker dies goes to another one by itself
TIMEOUT = "30s"  # for the scheduler to answer


@dataclass(frozen=True)
class Dask:
    """The workers of a cluster, such as ``tcp://host:8786``.

    They need quantprop in the same version. Dask gives NumPy one thread in each of its processes, as `pool` does;
    with other settings, or on another kind of machine, the last digits of results may differ.
    """

    address: str

    def carry_out(self, units: list[Unit]) -> Results:
        """Each unit with its rows, as they come. Whatever ends the loop also cancels what is left of it."""
        try:
            from distributed import Client, as_completed
        except ImportError as error:
            raise RuntimeError(f"{error}: a cluster needs Dask; pip install 'quantprop[cluster]'") from None
        with Client(self.address, timeout=TIMEOUT) as client:
            waiting = {client.submit(done_remotely, unit, pure=False, retries=RETRIES) for unit in units}
            try:
                for future in as_completed(waiting):
                    waiting.discard(future)
                    yield future.result()
            finally:
                client.cancel(list(waiting))


def done_remotely(unit: Unit) -> Done:
    """A unit carried out. JAX reads its settings when it first computes, which in a fresh worker is here."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return done(unit)
