"""A sweep whose rows are made up from their keys. `python -m experiments.pretend FOLDER PAUSE` runs one."""

import dataclasses
import sys
import time
import zlib
from pathlib import Path

from quantprop.experiments.rows import Row, lines
from quantprop.experiments.sweep import Done, Plan, run

PLAN = Plan(("wine2", "mining"), ("ep", "qp", "vb"), rounds=2)


def made_up(experiment, method):
    """A row whose numbers follow from what it is about."""
    key = {**dataclasses.asdict(experiment), "method": method}
    number = (zlib.crc32(repr(key).encode()) % 1000) / 1000
    test = {"y": [1.0], "mean": [number], "variance": [1.0 + number], "log_prob": [-number]}
    test |= {"variance_at_ep": [0.9]} if method == "qp" else {}
    mining = {kind: {"te": number, "ntll": number} for kind in ("negative-binomial", "exact")}
    return Row(
        **key, seed=experiment.seed, te=number, ntll=number, hyperparameters={"kernel.variance": number},
        evidence=-number, sweeps=3, evaluations=9, status="converged after 9 evaluations", converged=True,
        seconds=time.perf_counter(), versions={}, forecasts=mining if experiment.dataset == "mining" else {}, test=test,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Pretend:
    """Workers that make rows up, last units first, with a pause after each."""

    pause: float = 0.0

    def carry_out(self, units):
        for unit in reversed(units):
            time.sleep(self.pause)
            new = [made_up(unit.experiment, method) for method in unit.methods]
            yield Done(unit, new, lines(new))


if __name__ == "__main__":
    run(PLAN, Path(sys.argv[1]), Pretend(float(sys.argv[2])))
