"""An interrupt ends a command plainly, even while its modules are imported."""

import subprocess
import sys

import pytest

INTERRUPTED = """
import os, runpy, signal, sys

module = sys.argv.pop(1)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
runpy.run_module("quantprop.cli", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "module", ["quantprop.cli.commands", "typer", "jax", "sklearn.gaussian_process", "quantprop.tables.reading"]
)
def test_an_interrupt_while_modules_are_imported_ends_it_plainly(module, tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, module, "fit", str(tmp_path / "none.csv"), "--target", "y"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped; nothing was written\n")
