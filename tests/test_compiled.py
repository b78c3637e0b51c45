"""Programs kept on disk: another process finds them, many may write at once, nothing half written is ever read."""

import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import jax
import pytest

from quantprop import cache
from quantprop.cli import screen
from quantprop.runtime import compiled

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROBE = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
import jax, jax.numpy as jnp
import quantprop
jax.jit(lambda x: x + 1)(1.0)                       # compiled before, and not kept
print("home", quantprop.cache())
print("value", float(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.arange(4.0))))
"""


pytestmark = pytest.mark.usefixtures("no_compiled_programs")


def start(folder, **more):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "QUANTPROP_CACHE": str(folder), **more}
    return subprocess.Popen([sys.executable, "-c", PROBE], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)  # fmt: skip


def kept(folder):
    return sorted(folder.glob(f"*/{compiled.STORE}/*-cache"))


def test_programs_that_others_may_have_written_are_left_aside(tmp_path):
    """And what is no file."""
    store = tmp_path / compiled.STORE
    store.mkdir()
    for name in ("own-cache", "open-cache"):
        (store / name).write_bytes(b"program")
    (store / "open-cache").chmod(0o666)
    (store / "folder-program").mkdir()
    with pytest.warns(RuntimeWarning, match=r"open-cache and all like it are not used"):
        workspace = compiled._opened(tmp_path)
    assert [file.name for file in workspace.iterdir()] == ["own-cache"]


def test_processes_share_programs_and_leave_nothing_else(tmp_path):
    """Two at once write the same programs; one that comes later reads them, whole, and writes none."""
    both = [start(tmp_path), start(tmp_path)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    files = kept(tmp_path)
    assert files
    before = [(file.stat().st_ino, file.read_bytes()) for file in files]
    third = start(tmp_path)
    said.append(third.communicate()[0])
    assert [(file.stat().st_ino, file.read_bytes()) for file in kept(tmp_path)] == before
    values = {line for text in said for line in text.splitlines() if line.startswith("value ")}
    assert len(values) == 1
    assert "Persistent compilation cache hit" in said[2]
    assert not list(tmp_path.glob(f"*/{compiled.WORKSPACE}/*"))


@pytest.mark.parametrize("word", ["off", "OFF", "0"])
def test_one_switch_turns_it_off(word, monkeypatch, tmp_path):
    monkeypatch.setenv("QUANTPROP_CACHE", word)
    before = jax.config.jax_compilation_cache_dir
    assert cache(tmp_path) is None
    assert jax.config.jax_compilation_cache_dir == before
    assert not list(tmp_path.iterdir())


def test_a_folder_that_jax_was_told_of_is_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("QUANTPROP_CACHE")
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    try:
        assert cache(tmp_path / "ours") == tmp_path / "theirs"
        assert not (tmp_path / "ours").exists()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_the_shelf_is_bounded_and_old_folders_are_swept(tmp_path):
    store, workspaces = tmp_path / compiled.STORE, tmp_path / compiled.WORKSPACE
    store.mkdir()
    for i, name in enumerate(("old", "middle", "new")):
        (store / name).write_bytes(bytes(100))
        os.utime(store / name, (i, i))
    for name, age in (("killed", 8 * 86400), ("running", 60)):
        (workspaces / name).mkdir(parents=True)
        (workspaces / name / "half").write_bytes(b"part of a fi")
        os.utime(workspaces / name, (time.time() - age,) * 2)
    compiled._evict(tmp_path, most=250)
    assert sorted(file.name for file in store.iterdir()) == ["middle", "new"]
    assert [folder.name for folder in workspaces.iterdir()] == ["running"]


def test_without_links_files_are_copied_whole(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    (tmp_path / "a").write_bytes(b"program")
    compiled._linked(tmp_path / "a", tmp_path / "b")
    compiled._linked(tmp_path / "gone", tmp_path / "c")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a": b"program", "b": b"program"}


def test_a_home_that_cannot_be_written_is_said_once_and_no_hindrance(tmp_path, monkeypatch):
    from quantprop.cli.screen import kept_programs

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("QUANTPROP_CACHE", str(tmp_path / "file" / "folder"))
    said = []
    monkeypatch.setattr("quantprop.cli.screen.note", said.append)
    with kept_programs():
        pass
    assert len(said) == 1
    assert "QUANTPROP_CACHE=off" in said[0]


def test_a_program_that_was_not_written_to_its_end_is_kept_by_nobody(tmp_path):
    """As on a full disk, where JAX leaves a part of the file behind."""
    store, workspace = tmp_path / "store", tmp_path / "workspace"
    store.mkdir(), workspace.mkdir()
    whole = zlib.compress(bytes(range(256)) * 64)
    (workspace / "whole-cache").write_bytes(whole)
    (workspace / "part-cache").write_bytes(whole[:-20])
    compiled._closed(workspace, store, os.getpid())
    assert [file.name for file in store.iterdir()] == ["whole-cache"]
    compiled._closed(workspace, store, os.getpid())  # a workspace that another process has removed


def test_without_a_home_commands_go_on(monkeypatch, capsys):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("QUANTPROP_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with screen.kept_programs():
        pass
    assert "compiled programs are not kept: Could not determine home directory" in capsys.readouterr().err
