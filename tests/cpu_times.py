"""A plugin of pytest that writes the CPU time of every test, its fixtures and its subprocesses included.

CPU_TIMES=times.jsonl python -m pytest -p cpu_times ...    # a line a test: its name, seconds here, seconds of children
"""

import json
import os

import pytest


def spent() -> tuple[float, float]:
    """CPU seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    before = spent()
    result = yield
    own, children = (after - first for after, first in zip(spent(), before, strict=True))
    with open(os.environ["CPU_TIMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps([item.nodeid, round(own, 3), round(children, 3)]) + "\n")
    return result
