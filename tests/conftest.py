"""What all tests share."""

import gc
import os
import shutil
import tempfile
import time
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

if os.environ.get("QUANTPROP_CHECKED"):
    import checked

    checked.install()

os.environ["QUANTPROP_CACHE"] = "off"  # commands would keep compiled programs in the home of who runs the tests

from quantprop.runtime import programs

gc.set_threshold(500_000, 50, 1000)  # tracing makes many objects that live on: to look them through takes 3 % of time

# A run compiles thousands of programs, of which the library would evict some again and again; `few_compiled_programs`
# counts memory maps instead.
programs.MAX_PROGRAMS = 512
programs.most_memory_maps = lambda: 150_000

FOLDER = "jax_compilation_cache_dir"
KEPT = {  # settings under which every program is kept, beside those that JAX starts with
    "jax_persistent_cache_min_compile_time_secs": (0.0, 1.0),
    "jax_persistent_cache_min_entry_size_bytes": (-1, 0),
    "jax_persistent_cache_enable_xla_caches": ("none", "xla_gpu_per_fusion_autotune_cache_dir"),
}
MAPS = Path("/proc/self/maps")
MANY = 45_000  # memory maps; a process may hold 65,530, and every compiled program takes some
OFTEN = 10.0  # seconds between two looks at them: to read them takes as long as many a test
looked = {"at": 0.0}


def pytest_configure(config):
    """Workers, and processes that tests start, have one folder of compiled programs: each is compiled once. It is the
    one that the environment names, or else one for this run; workers have it from the process that started them.
    """
    folder = os.environ.get(FOLDER.upper())
    if folder is None:
        folder = tempfile.mkdtemp(prefix="quantprop-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name, (value, _) in (KEPT | {FOLDER: (folder, None)}).items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            jax.config.update(name, value)


@pytest.fixture
def no_compiled_programs(monkeypatch):
    """As if there were no such folder, and none of its settings, also in processes that the test starts."""
    settings = KEPT | {FOLDER: ("", None)}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, (_, value) in settings.items():
        monkeypatch.delenv(name.upper(), raising=False)
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # JAX looks at its settings once
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def two_members(monkeypatch):
    """Stacks of the first two members only, where a test is about the stack: each member has programs of its own."""
    from quantprop.estimators.first_kernel import DefaultKernel

    members = DefaultKernel.members
    monkeypatch.setattr(DefaultKernel, "members", lambda self, x: dict(list(members(self, x).items())[:2]))


@pytest.fixture(autouse=True)
def few_compiled_programs():
    """Forget compiled programs before there are more than the system allows."""
    yield
    if MAPS.exists() and time.monotonic() - looked["at"] > OFTEN:
        looked["at"] = time.monotonic()
        if MAPS.read_bytes().count(b"\n") > MANY:
            jax.clear_caches()
