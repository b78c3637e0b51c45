"""A fit whose rows are divided among processes is the fit of one process."""

import os
import subprocess
import sys

import numpy as np
import pytest

from shards.job import BOX, COPIES, inferred, problem, quick, small, small_by_qp
from shards.jobs import differences, results

THETA = 1e-6
REST = 1e-9


def compare(jobs: list[dict[str, np.ndarray]], one: dict[str, np.ndarray]) -> None:
    """Every process has the same model to the last bit, and it is that of one process."""
    for name, difference in differences(jobs, one).items():
        assert difference <= (THETA if name == "theta" else REST), name


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What the two processes of a job returned: a posterior, and what they say of rows that one of them cannot take."""
    return results(tmp_path_factory.mktemp("job"), "quick_and_wrong", 400, 2)


def test_two_processes_are_one(two):
    compare(two, quick(problem(400)))


def test_sweeps_of_a_search_end_in_all_processes_at_once(two):
    """By the rows of all, n: values on the way may be wrong by n r² ≤ 1e-3 nats, r being the residual."""
    first, second = two
    assert first["way.rows"] == second["way.rows"] == 400 * COPIES
    assert first["way.tol"] == second["way.tol"]
    assert first["way.tol"] == pytest.approx(np.sqrt(1e-3 / (400 * COPIES)), rel=1e-15)


@pytest.mark.campaign
@pytest.mark.parametrize("case", [small, small_by_qp, inferred])
def test_two_processes_are_one_in_other_cases(case, tmp_path):
    compare(results(tmp_path, case.__name__, 400, 2), case(problem(400)))


def test_what_one_process_cannot_take_all_refuse(two):
    first, second = two
    assert str(second["nan"]).startswith("ValueError: X[0, 0] = nan")
    assert str(first["nan"]) == f"JobError: process 1 of the job stopped: {second['nan']}"
    for job in (first, second):
        assert [words.split(" ")[0] for words in job["refused"]] == ["Dense", "Markov"]
        assert all("use process=Inducing(points)" in words for words in job["refused"])
        assert str(job["unlike"]) == (
            "process 1 of the job has numpy 2.1, jax 0.10, and process 0 has numpy 2.0, jax 0.10: install the same "
            "versions on all hosts"
        )


def test_where_one_process_is_short_of_memory_all_stop(two):
    first, second = two
    assert str(second["full"]) == "MemoryError: too many rows"
    assert str(first["full"]) == "JobError: process 1 of the job stopped: MemoryError: too many rows"


def test_random_starts_are_those_of_the_first_process(two):
    first, second = two
    assert np.array_equal(first["starts"], second["starts"])
    assert len(np.unique(first["starts"], axis=0)) == 2
    assert ((BOX[:, 0] <= first["starts"]) & (first["starts"] <= BOX[:, 1])).all()


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp"])
def test_what_is_sent_depends_on_the_points_alone(tmp_path, method):
    (found,) = results(tmp_path, f"collectives_of_{method}", 1000, 1, devices=2)
    m, d, scalars = 16, 2, 40  # what Anderson's equations and the norms of a sweep send is smaller than that
    assert all(line.startswith("all-reduce ") for lines in found.values() for line in map(str, lines))
    sizes = {name: [int(str(line).split()[1]) for line in lines] for name, lines in found.items()}
    large = {name: [size for size in own if size > scalars] for name, own in sizes.items()}
    assert large["solved"] == [m * m + m]  # V diag(s) Vᵀ and V r, once a sweep
    assert all(size <= m * m + m * d + 8 for size in large["gradient"])
    if method == "ep":
        (slope,) = large["gradient"]
        assert m * m + m * d <= slope  # of L⁻¹, the points, and the kernel's numbers
    assert not large["prior"]
    assert not large["pull_back"]


def test_a_mean_that_is_a_function_is_divided_with_the_rows():
    script = (
        "import numpy as np, quantprop\n"
        "from quantprop import Inducing, Model, infer, kernels, likelihoods\n"
        "x = np.linspace(-3.0, 3.0, 60)[:, None]\n"
        "y = np.sign(np.sin(2.0 * x[:, 0]) + 0.2 * np.cos(40.0 * x[:, 0]))\n"
        "model = Model(kernels.SquaredExponential(), likelihoods.Probit(), lambda x: 0.1 * x[:, 0], Inducing(5))\n"
        "whole = infer(model, x, y, 'laplace')\n"
        "with quantprop.sharded():\n"
        "    divided = infer(model, x, y, 'laplace')\n"
        "print(whole.log_evidence, divided.log_evidence)\n"
    )
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    whole, divided = map(float, done.stdout.split())
    assert divided == pytest.approx(whole, abs=1e-9)
