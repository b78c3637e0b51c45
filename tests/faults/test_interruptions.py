"""Killed, interrupted, without space, or beside another writer: what was on the disk stays whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import quick
from experiments.pretend import PLAN, Pretend
from storage.cases import MODELS, made, same

import quantprop
from quantprop.experiments import rows
from quantprop.experiments.sweep import run
from quantprop.storage import load, save

TESTS = Path(__file__).resolve().parent.parent
SOURCE = Path(quantprop.__file__).resolve().parent.parent


def started(name, folder):
    """One of the programs of `faults.programs`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(TESTS)]), "OPENBLAS_NUM_THREADS": "1"}
    environment["XLA_FLAGS"] = quick.FLAGS
    return subprocess.Popen(
        [sys.executable, "-m", "faults.programs", name, str(folder)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def line_of(process):
    return process.stdout.readline().strip()


def is_one_of(loaded, models):
    return any(same(loaded, model) for model in models)


# --- models ----------------------------------------------------------------------------------------------------------


def test_a_killed_save_leaves_one_of_the_two_models(tmp_path):
    wait = random.Random(0)
    both = [made(MODELS["ard"]), made(MODELS["poisson"])]
    with started("save_again_and_again", tmp_path) as process:
        assert line_of(process) == "saved"
        for _ in range(8):  # stopped in the middle of anything, a save has not changed the file or has changed all
            time.sleep(wait.uniform(0.0, 0.01))
            process.send_signal(signal.SIGSTOP)
            assert is_one_of(load(tmp_path / "model"), both)
            process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert is_one_of(load(tmp_path / "model"), both)
    left = [path.name for path in tmp_path.iterdir() if path.name != "model"]
    assert len(left) <= 1  # the file that was being written
    assert all(name.startswith(".model.") and name.endswith(".tmp") for name in left)


@pytest.mark.campaign
def test_a_save_without_space_leaves_the_old_model(tmp_path):
    with started("save_without_space", tmp_path) as process:
        told, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "File too large" in told


def test_two_writers_and_a_reader(tmp_path):
    """Every model that is read is one that was written, whole."""
    models = [made(MODELS["ard"]), made(MODELS["poisson"])]
    save(models[0], tmp_path / "model")

    def write(model):
        for _ in range(8):
            save(model, tmp_path / "model")

    writers = [threading.Thread(target=write, args=(model,)) for model in models]
    for writer in writers:
        writer.start()
    read = 0
    while any(writer.is_alive() for writer in writers) or read == 0:
        assert is_one_of(load(tmp_path / "model"), models)
        read += 1
    for writer in writers:
        writer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_sweep_without_space_says_so_and_goes_on_where_it_was(tmp_path):
    folder, undisturbed = tmp_path / "full", tmp_path / "whole"
    with started("sweep_without_space", folder) as process:
        errors = process.communicate(timeout=120)[1]
    assert process.returncode != 0
    assert "could not be written whole; is the disk full?" in errors or "File too large" in errors
    there = rows.read(folder)
    whole = {row.key: row.ntll for row in run(PLAN, undisturbed, Pretend())}
    assert 0 < len(there) < len(whole)
    assert all(whole[row.key] == row.ntll for row in there)
    assert {row.key: row.ntll for row in run(PLAN, folder, Pretend())} == whole


# --- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["fit_many_for_long", "fit_for_long"])
def test_an_interrupt_ends_learning_soon(name, tmp_path):
    with started(name, tmp_path) as process:
        said = line_of(process)
        os.kill(process.pid, signal.SIGINT)
        began = time.monotonic()
        errors = process.communicate(timeout=120)[1]
    assert said == "working", errors
    assert time.monotonic() - began < 30
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


def test_an_interrupt_during_save_leaves_the_old_model(tmp_path, monkeypatch):
    model = made(MODELS["ard"])
    save(model, tmp_path / "model")
    for broken in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def interrupted(*_):
                raise KeyboardInterrupt

            patch.setattr(os, broken, interrupted)
            with pytest.raises(KeyboardInterrupt):
                save(made(MODELS["poisson"]), tmp_path / "model")
        assert same(load(tmp_path / "model"), model)
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
