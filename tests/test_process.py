"""The process of a command imports less than scikit-learn asks for, and nobody can tell but by the time it takes."""

import subprocess
import sys

import pytest

from quantprop.cli.process import absent, deferred


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


def test_parts_of_scipy_stats_come_whole_after_scikit_learn():
    """A stand-in left in place would give every row of a Sobol sequence the same numbers."""
    sobol = "from scipy.stats import qmc\nprint(qmc.Sobol(2, seed=0).random(4).tolist())"
    after = "from quantprop.cli.process import import_scikit_learn\nimport_scikit_learn()\n"
    assert ran(after + sobol) == ran(sobol)


def test_a_deferred_module_is_imported_when_a_function_is_called_or_anything_else_asked_for(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with deferred("colorsys", ("rgb_to_yiq",)):
        import colorsys

        assert sys.modules["colorsys"] is colorsys
        assert "ONE_THIRD" not in vars(colorsys)  # nothing has run
        assert colorsys.rgb_to_yiq(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0)
        assert sys.modules["colorsys"] is not colorsys
        assert colorsys.ONE_THIRD == 1 / 3
    assert type(sys.modules["colorsys"]).__name__ == "module"


def test_an_absent_module_fails_to_import_and_comes_back(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with absent("colorsys"), pytest.raises(ImportError):
        import colorsys
    import colorsys

    with absent("colorsys"):
        import colorsys as again  # since it was there before
    assert again is colorsys


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
