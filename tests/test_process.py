"""The process of a command imports less than scikit-learn asks for, and nobody can tell but by the time it takes."""

import subprocess
import sys

import pytest
from scipy.stats import qmc


def ran(code: str) -> str:
    """What a new process prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_scipy_stats_waits_until_it_is_used_and_then_is_itself():
    code = """
import sys
from quantprop.cli.process import import_scikit_learn
import_scikit_learn()
print("scipy.stats" in sys.modules, "pandas" in sys.modules)
from sklearn.metrics import roc_auc_score
from sklearn.metrics._ranking import rankdata
from sklearn.utils.fixes import _mode
print(rankdata([3.0, 1.0, 1.0]).tolist(), _mode([1, 2, 2]).mode.tolist())
print(roc_auc_score([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]))
import scipy
print(sys.modules["scipy.stats"] is scipy.stats, scipy.stats.norm.cdf(0.0))
"""
    assert ran(code).split("\n")[:-1] == ["False False", "[3.0, 1.5, 1.5] [2]", "0.75", "True 0.5"]


@pytest.mark.campaign
def test_another_name_of_scipy_stats_imports_it_at_once():
    code = """
import sys
from quantprop.cli.process import Deferred
sys.modules["scipy.stats"] = Deferred("scipy.stats")
from scipy.stats import norm
print(norm.cdf(0.0), type(sys.modules["scipy.stats"]).__name__)
"""
    assert ran(code).split("\n")[:-1] == ["0.5 module"]


def test_parts_of_scipy_stats_come_whole_after_scikit_learn():
    """A stand-in left in place would give every row of a Sobol sequence the same numbers."""
    sobol = "from scipy.stats import qmc\nprint(qmc.Sobol(2, seed=0).random(4).tolist())"
    after = "from quantprop.cli.process import import_scikit_learn\nimport_scikit_learn()\n"
    assert ran(after + sobol) == f"{qmc.Sobol(2, seed=0).random(4).tolist()}\n"


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
    "module",
    [
        "jax",
        *(
            pytest.param(name, marks=pytest.mark.campaign)
            for name in ("quantprop.cli.commands", "typer", "sklearn.gaussian_process", "quantprop.tables.reading")
        ),
    ],
)
def test_an_interrupt_while_modules_are_imported_ends_it_plainly(module, tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, module, "fit", str(tmp_path / "none.csv"), "--target", "y"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped; nothing was written\n")
