"""Sweeps on a Dask cluster: the same rows, also when a worker is killed."""

import dataclasses
import os
import signal
import sys
import threading
import time

import pytest
from distributed import LocalCluster
from experiments.pretend import made_up

from quantprop.experiments import rows
from quantprop.experiments.pool import Dask, Local
from quantprop.experiments.protocol import Experiment
from quantprop.experiments.sweep import Plan, Unit, run


def cluster(workers):
    """Worker processes of one thread each, on this machine."""
    return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None)


def by_key(many):
    return {row.key: dataclasses.replace(row, seconds=0.0) for row in many}


@pytest.mark.campaign
def test_units_go_to_the_cluster_and_come_back():
    def unit(fold):  # which ends at once, in a failed row
        experiment = Experiment("wine2", fold=fold)
        return Unit(experiment, ("qp",), dataclasses.replace(made_up(experiment, "ep"), te=None, status="no posterior"))

    units = [unit(fold) for fold in range(3)]
    with cluster(1) as there:
        found = {one.unit.experiment: by_key(one.rows) for one in Dask(there.scheduler_address).carry_out(units)}
    assert found == {one.unit.experiment: by_key(one.rows) for one in Local(1).carry_out(units)}
    assert len(found) == 3


def test_without_dask_there_is_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RuntimeError, match=r"pip install 'quantprop\[cluster\]'"):
        list(Dask("tcp://127.0.0.1:1").carry_out([]))


@pytest.mark.campaign
def test_a_killed_worker_leaves_no_trace(tmp_path):
    plan = Plan(("wine2",), ("ep", "qp"), rounds=1)
    expected = by_key(run(plan, tmp_path / "local", Local(1)))
    with cluster(3) as there:
        killed = []

        def kill_one():
            while len(rows.read(tmp_path / "dask")) < 6:
                time.sleep(0.01)
            killed.append(next(iter(there.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        found = by_key(run(plan, tmp_path / "dask", Dask(there.scheduler_address)))
        killer.join()
    assert killed
    assert len(found) == 20
    assert found == expected
