"""Programs kept on disk: another process finds them, many may write at once, nothing half written is ever read."""

import os
import subprocess
import sys
import time
import zlib
from contextlib import nullcontext
from pathlib import Path

import jax
import pytest

from quantprop import cache
from quantprop.cli import screen
from quantprop.runtime import compiled, folders, seals

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
    return sorted(folder.glob(f"*/{folders.STORE}/*-cache"))


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602])
def test_programs_that_others_may_have_written_are_left_aside(mode, tmp_path):
    """JAX's with the folder of all, ours when they are due; and what is no file."""
    store = folders.opened(tmp_path)
    for name in ("own-cache", "open-cache"):
        (store / name).write_bytes(b"program")
        (store / name).chmod(0o644)
    (store / "open-cache").chmod(mode)
    (store / "folder-cache").mkdir()
    with pytest.warns(RuntimeWarning, match=r"open-cache and all like it are not used"):
        workspace = compiled._opened(tmp_path, store)
    assert [file.name for file in workspace.iterdir()] == ["own-cache"]
    seals.write(store / "ours", b"program")
    assert seals.read(store / "ours") == b"program"
    (store / "ours").chmod(mode)
    with pytest.raises(PermissionError, match="others than its user could have written"):
        seals.read(store / "ours")


@pytest.mark.parametrize("part", ["", folders.STORE, folders.WORKSPACE, ".."])
@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_folders_that_others_may_write_to_are_refused(part, mode, tmp_path):
    """So are those above, unless others cannot rename there what is not theirs."""
    home = tmp_path / "above" / "home"
    folders.opened(home)
    (home / part).chmod(mode)
    safe = mode == 0o1777 and part in ("", "..")
    with nullcontext() if safe else pytest.raises(PermissionError, match="chmod go-w"):
        folders.opened(home)


def test_folders_and_files_of_other_users_are_refused(tmp_path, monkeypatch):
    store = folders.opened(tmp_path)
    seals.write(store / "ours", b"program")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    stranger = os.stat_result((0o100644, 0, 0, 1, 54321, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: stranger)
    with pytest.raises(PermissionError):
        seals.read(store / "ours")
    monkeypatch.setattr(Path, "stat", lambda _: os.stat_result((0o040700, 0, 0, 1, 54321, 0, 0, 0, 0, 0)))
    with pytest.raises(PermissionError, match="owned by user 54321"):
        folders.check_own(tmp_path)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_what_is_made_is_the_users_alone(mask, tmp_path):
    before = os.umask(mask)
    try:
        store = folders.opened(tmp_path / "more" / "home")
        seals.write(store / "program", b"")
        workspace = compiled._opened(store.parent, store)
        (workspace / "jaxs-cache").write_bytes(zlib.compress(b"program"))
        compiled._closed(workspace, store, os.getpid())
    finally:
        os.umask(before)
    made = [store / "program", store / "jaxs-cache", store, *store.parents[:2], store.parent / folders.WORKSPACE]
    assert [path.stat().st_mode & 0o077 for path in made] == [0] * 6


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
    assert not list(tmp_path.glob(f"*/{folders.WORKSPACE}/*"))


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
    store, workspaces = tmp_path / folders.STORE, tmp_path / folders.WORKSPACE
    store.mkdir()
    for i, name in enumerate(("old", "middle", "new")):
        (store / name).write_bytes(bytes(100))
        os.utime(store / name, (i, i))
    for name, age in (("killed", 8 * 86400), ("running", 60)):
        (workspaces / name).mkdir(parents=True)
        (workspaces / name / "half").write_bytes(b"part of a fi")
        os.utime(workspaces / name, (time.time() - age,) * 2)
    folders._evict(tmp_path, most=250)
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
