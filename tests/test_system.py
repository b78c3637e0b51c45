"""What the system lends a process, on systems that say more and on such that say less."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quantprop import Dense
from quantprop.priors.dense import PEAK_MATRICES
from quantprop.runtime import memory, system

SOURCE = Path(__file__).resolve().parent.parent / "src"
GIB = 2**30
# 24 GiB, nearly all of it holding files that were read or written: free pages are few, and 20 GiB can be had.
FULL_PAGE_CACHE = (
    f"MemTotal: {24 * 2**20} kB\nMemFree: {2**18} kB\nMemAvailable: {20 * 2**20} kB\nCached: 20000000 kB\n"
)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A system's files as a function that writes them."""
    monkeypatch.setattr(system, "PROC", tmp_path / "proc")
    monkeypatch.setattr(system, "CGROUPS", tmp_path / "cgroup")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))

    return write


def group(machine, folder, limit, used, cached=0):
    machine(f"cgroup/{folder}/memory.max", f"{limit}\n")
    machine(f"cgroup/{folder}/memory.current", f"{used}\n")
    machine(
        f"cgroup/{folder}/memory.stat", f"anon 1\nactive_file {cached // 2}\ninactive_file {cached - cached // 2}\n"
    )


def old_group(machine, folder, limit, used, cached=0):
    machine(f"cgroup/memory/{folder}/memory.limit_in_bytes", f"{limit}\n")
    machine(f"cgroup/memory/{folder}/memory.usage_in_bytes", f"{used}\n")
    machine(f"cgroup/memory/{folder}/memory.stat", f"inactive_file 7\ntotal_inactive_file {cached}\n")


def test_a_full_page_cache_leaves_memory_to_be_had(machine):
    machine("proc/meminfo", FULL_PAGE_CACHE)
    assert system.available_memory() == 20 * GIB
    most = int((20 * GIB / (8 * PEAK_MATRICES)) ** 0.5)
    memory.check_memory(Dense().cost(most))
    with pytest.raises(MemoryError, match=r"at most 20\.0 GiB are available"):
        memory.check_memory(Dense().cost(most + 1))


def test_the_least_that_a_group_leaves_counts_and_cached_files_do_not(machine):
    machine("proc/meminfo", FULL_PAGE_CACHE)
    machine("proc/self/cgroup", "0::/pod/box\n")
    group(machine, "pod/box", "max", 7 * GIB)
    assert system.available_memory() == 20 * GIB
    group(machine, "pod", 8 * GIB, 8 * GIB, cached=3 * GIB)
    assert system.available_memory() == 3 * GIB
    group(machine, "pod/box", 2 * GIB, GIB)
    assert system.available_memory() == GIB


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proc/meminfo", "MemAvailable: unknown\n"),
        ("proc/meminfo", "MemAvailable:\n"),
        ("proc/self/cgroup", "a line of another form\n0::/pod/caf\udce9\n"),
        ("cgroup/pod/memory.stat", "three words here\nactive_file many\n"),
        ("cgroup/pod/memory.max", "²\n"),
    ],
)
def test_odd_words_of_the_system_are_passed_over(machine, name, text):
    machine("proc/meminfo", FULL_PAGE_CACHE)
    machine("proc/self/cgroup", "0::/pod\n")
    group(machine, "pod", 8 * GIB, GIB)
    machine(name, text)
    found = system.available_memory()
    assert found is None or found > 0


def test_a_group_leaves_no_more_than_its_limit(machine):
    machine("proc/meminfo", FULL_PAGE_CACHE)
    machine("proc/self/cgroup", "0::/pod\n")
    group(machine, "pod", 500, 100, cached=1100)
    assert system.available_memory() == 500


def test_groups_of_the_first_version(machine):
    machine("proc/meminfo", FULL_PAGE_CACHE)
    machine("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n")
    old_group(machine, "job", 4 * GIB, 3 * GIB, cached=GIB)
    old_group(machine, "", 2**63 - 4096, 9 * GIB)
    assert system.available_memory() == 2 * GIB


def test_inside_a_container_the_groups_path_may_be_the_hosts(machine):
    machine("proc/meminfo", FULL_PAGE_CACHE)
    machine("proc/self/cgroup", "0::/docker/0123\n")
    group(machine, "", 6 * GIB, 2 * GIB)
    assert system.available_memory() == 4 * GIB


def test_limits_of_the_process_leave_what_arrays_may_take(machine, monkeypatch):
    import resource

    unlimited = resource.RLIM_INFINITY
    told = {resource.RLIMIT_AS: unlimited, resource.RLIMIT_DATA: unlimited}
    monkeypatch.setattr(resource, "getrlimit", lambda name: (told[name], unlimited))
    machine("proc/meminfo", FULL_PAGE_CACHE)
    machine("proc/self/status", f"Name:\tpython\nVmSize:\t {4 * 2**20} kB\nVmData:\t {2**20} kB\n")
    assert (system.available_memory(), system.limits()) == (20 * GIB, {})
    told[resource.RLIMIT_AS] = 8 * GIB
    assert system.available_memory() == 4 * GIB - system.COMPILER
    told[resource.RLIMIT_DATA] = 3 * GIB
    assert system.available_memory() == 2 * GIB - system.COMPILER
    told[resource.RLIMIT_AS] = 4 * GIB
    assert system.available_memory() == 0
    with pytest.raises(MemoryError, match=r"limits of the process \(RLIMIT_AS, RLIMIT_DATA\)"):
        memory.check_memory(Dense().cost(2))


def test_where_nothing_is_said_of_available_memory_the_installed_one_counts(machine, monkeypatch):
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert system.available_memory() == installed
    monkeypatch.delattr(os, "sysconf")
    assert system.available_memory() is None
    memory.check_memory(Dense().cost(10**6))  # nobody knows: it is tried


def test_what_this_system_says_is_plausible():
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < system.available_memory() <= installed
    assert 100 < system.memory_maps() < system.most_memory_maps()


def test_memory_maps(machine):
    assert system.memory_maps() is None
    assert system.most_memory_maps() == 65_530
    machine("proc/self/maps", "a\nb\nc\n")
    machine("proc/sys/vm/max_map_count", "262144\n")
    assert (system.memory_maps(), system.most_memory_maps()) == (3, 262_144)


@pytest.mark.parametrize(
    ("backend", "said", "not_said"),
    [("cpu", "computer or container with more", "CPU"), ("gpu", "JAX_PLATFORMS=cpu", "container")],
)
def test_advice_is_for_where_it_is_computed(monkeypatch, backend, said, not_said):
    monkeypatch.setattr(memory.jax, "default_backend", lambda: backend)
    assert said in memory.ways_out()
    assert not_said not in memory.ways_out()


ELSEWHERE = """
import os, signal, sys
from pathlib import Path

import jax, jaxtyping  # which need on this system what is taken away

for module in ("resource", "fcntl"):
    sys.modules[module] = None
for holder, names in ((os, ("sysconf", "sched_getaffinity", "O_NONBLOCK")), (signal, ("pthread_sigmask",))):
    for name in names:
        delattr(holder, name)

from quantprop.runtime import system

system.PROC = system.CGROUPS = Path("there/is/none")

import quantprop.cli.commands, quantprop.experiments.pool
import numpy as np
from quantprop import Model, fit, kernels, likelihoods, load, save
from quantprop.runtime import batches

x = np.linspace(0.0, 3.0, 20)[:, None]
y = np.sin(x[:, 0]) + 0.01 * np.cos(50.0 * x[:, 0])
fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Gaussian()), x, y, "laplace")
save(fitted, sys.argv[1])
again = load(sys.argv[1])
assert batches.threads() == os.cpu_count()
print(fitted.status.reason, float(again.solution.predict([[1.0]]).mean[0]))
"""


def test_a_system_that_says_nothing_imports_and_fits(tmp_path):
    """As on macOS or Windows: no sysconf, no affinity, no resource, fcntl or signal masks, no /proc."""
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "model")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reason, mean = done.stdout.split()
    assert reason == "converged"
    assert float(mean) == pytest.approx(0.841, abs=0.02)  # sin 1
