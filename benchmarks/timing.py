"""Times of calls in this process, measured in turn so that a busy machine slows all of them, and of new processes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import jax
import numpy as np

Clock = Callable[[], float]


def elapsed(call: Callable, clock: Clock = time.perf_counter) -> float:
    """Seconds of one call, its arrays computed."""
    start = clock()
    jax.block_until_ready(call())
    return clock() - start


def medians(*calls: Callable, rounds: int, clock: Clock = time.perf_counter) -> np.ndarray:
    """Median seconds of each call, measured in turn after a warm-up of all."""
    for call in calls:
        call()
    return np.median([[elapsed(call, clock) for call in calls] for _ in range(rounds)], axis=0)


def ratio(cost: Callable, yardstick: Callable, rounds: int = 15) -> tuple[float, float, float]:
    """Median seconds of both, and the ratio of the medians."""
    a, b = medians(cost, yardstick, rounds=rounds)
    return float(a), float(b), float(a / b)


def process_seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from the start of a process to the time that it prints, or to its end; and its processor seconds."""
    before, start = os.times(), time.time()
    ran = subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, text=True)
    end, after = time.time(), os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    printed = ran.stdout.split()[-1] if command[1] == "-c" else end
    return float(printed) - start, used
