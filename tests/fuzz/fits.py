"""`fit` on adversarial problems, one line of JSON each: at an optimum, or a reason why not.

python -m fuzz.fits fits.jsonl --count 300 --part 3 --of 12    # from the folder tests, with src on the path
python -m fuzz.fits fits.jsonl --summary
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.campaign import LIMIT, _give_up, mend, read
from fuzz.problems import WHOLE_MENU, problem

from quantprop import fit

STEP = 7  # between the numbers, so that 300 of them have all likelihoods and methods


def ended(number: int) -> dict[str, Any]:
    """How learning from a problem ended; its model is where it starts."""
    p, began = problem(number, WHOLE_MENU), time.perf_counter()
    about = {"number": number, "family": p.family, "method": p.method, "resolvable": p.resolvable, "about": p.about}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = fit(p.model, p.x, p.y, p.method, max_evaluations=100, **p.options)
    except Exception as error:
        return about | {"reason": f"{type(error).__name__}: {str(error)[:200]}", "seconds": time.perf_counter() - began}
    numbers = [fitted.theta, [fitted.objective_value], fitted.solution.marginals.mean]
    return about | {
        "reason": fitted.status.reason, "remedy": fitted.status.remedy or fitted.solution.status.remedy,
        "inference": fitted.solution.status.reason, "gradient": fitted.status.gradient,
        "evaluations": fitted.status.evaluations, "failed": fitted.status.failed,
        "finite": bool(np.isfinite(np.concatenate(numbers)).all()), "seconds": time.perf_counter() - began,
    }  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--summary", action="store_true")
    chosen = parser.parse_args()
    if chosen.summary:
        rows = read(chosen.path)
        print(Counter((row["reason"], row.get("inference", "-")) for row in rows))
        for row in rows:
            if row["reason"] not in ("converged", "nothing-to-learn"):
                print(row)
        return
    mend(chosen.path)
    done = {row["number"] for row in read(chosen.path)}
    pairs = len(WHOLE_MENU.pairs)
    numbers = sorted(range(0, STEP * chosen.count, STEP), key=lambda number: (number % pairs, number))
    mine = np.array_split(numbers, chosen.of)[chosen.part]
    with open(chosen.path, "ab") as file:
        for number in (int(n) for n in mine if int(n) not in done):
            watch = threading.Timer(LIMIT, _give_up, (file, problem(number, WHOLE_MENU)))
            watch.start()
            row = ended(number)
            watch.cancel()
            file.write((json.dumps(row) + "\n").encode())
            file.flush()


if __name__ == "__main__":
    main()
