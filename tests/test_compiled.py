"""Programs cached on disk: another process finds them, many may write at once, nothing incomplete is ever read."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import jax
import pytest

from quantprop import cache
from quantprop.cli import screen
from quantprop.runtime import compiled, disk_cache, folders

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
def test_programs_that_others_may_have_written_are_not_read(mode, tmp_path):
    """Neither the library's nor those that JAX asks for; and no folder in the place of a file."""
    store = folders.opened(tmp_path)
    jaxs = compiled.JaxCache(store)
    folders.write(store / "ours", b"program")
    jaxs.put("theirs", b"program")
    assert folders.read(store / "ours") == jaxs.get("theirs") == b"program"
    for file, read in ((store / "ours", folders.read), (store / "theirs-cache", lambda _: jaxs.get("theirs"))):
        file.chmod(mode)
        with pytest.raises(PermissionError, match="users other than its owner could have written"):
            read(file)
    (store / "folder-cache").mkdir()
    with pytest.raises(OSError, match="folder-cache"):
        jaxs.get("folder")


@pytest.mark.parametrize("part", ["", folders.STORE, ".."])
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
    folders.write(store / "ours", b"program")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    stranger = os.stat_result((0o100644, 0, 0, 1, 54321, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: stranger)
    with pytest.raises(PermissionError):
        folders.read(store / "ours")
    monkeypatch.setattr(Path, "stat", lambda _: os.stat_result((0o040700, 0, 0, 1, 54321, 0, 0, 0, 0, 0)))
    with pytest.raises(PermissionError, match="owned by user 54321"):
        folders.check_own(tmp_path)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_what_is_made_is_the_users_alone(mask, tmp_path):
    before = os.umask(mask)
    try:
        store = folders.opened(tmp_path / "more" / "home")
        folders.write(store / "program", b"")
        compiled.JaxCache(store).put("jaxs", b"program")
    finally:
        os.umask(before)
    made = [store / "program", store / "jaxs-cache", store, *store.parents[:2]]
    assert [path.stat().st_mode & 0o077 for path in made] == [0] * 5


def test_processes_share_programs_and_leave_nothing_else(tmp_path):
    """Two at once write the same programs; one that comes later reads them, whole, and writes none."""
    both = [start(tmp_path), start(tmp_path)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    files = kept(tmp_path)
    assert files
    assert all(folders.read(file) for file in files)  # JAX's programs, in files like the library's
    before = [(file.stat().st_ino, file.read_bytes()) for file in files]
    third = start(tmp_path)
    said.append(third.communicate()[0])
    assert [(file.stat().st_ino, file.read_bytes()) for file in kept(tmp_path)] == before
    values = {line for text in said for line in text.splitlines() if line.startswith("value ")}
    assert len(values) == 1
    assert "Persistent compilation cache hit" in said[2]
    assert [path.name for path in tmp_path.glob("*/*")] == [folders.STORE]


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


def test_the_oldest_programs_are_deleted(tmp_path):
    for i, name in enumerate(("old", "middle", "new")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (i, i))
    folders._evict(tmp_path, max_bytes=250)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["middle", "new"]


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


def test_a_program_that_was_not_written_to_its_end_is_not_read(tmp_path):
    """As on a full disk, or of a process that was killed: it is compiled and written again."""
    jaxs = compiled.JaxCache(tmp_path)
    jaxs.put("key", bytes(range(256)) * 64)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-20])
    assert jaxs.get("key") is None
    jaxs.put("key", b"program")
    assert jaxs.get("key") == b"program"
    jaxs.put(f"{disk_cache.MARK}library", b"program")  # which the library writes itself
    assert list(tmp_path.iterdir()) == [file]


def test_without_a_home_commands_go_on(monkeypatch, capsys):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("QUANTPROP_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with screen.kept_programs():
        pass
    assert "compiled programs are not stored: Could not determine home directory" in capsys.readouterr().err
