"""The process of a command, which the command line has for itself: it begins and ends sooner than one of a user's.

scikit-learn imports scipy.stats, in one module for `rankdata` and in another for functions that name it in full, and
pandas for nothing: a quarter of the time of a small `fit`. A last look for garbage through all objects is a sixth.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from quantprop.cli.interrupts import end
from quantprop.cli.screen import kept_programs
from quantprop.runtime.garbage import uncollected

FUNCTIONS = ("rankdata",)  # what scikit-learn takes from scipy.stats by name when it is imported


class Deferred(ModuleType):
    """In place of a module until something of it is asked for, or one of the named functions is called."""

    def __init__(self, name: str, functions: tuple[str, ...]) -> None:
        super().__init__(name)
        self.__spec__ = find_spec(name)
        self.__path__ = list(getattr(self.__spec__, "submodule_search_locations", None) or ())
        vars(self).update({function: _deferred(self, function) for function in functions})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.imported(), name)

    def imported(self) -> ModuleType:
        """The module itself."""
        self.leave()
        return import_module(self.__name__)

    def leave(self) -> None:
        """Give the place free: the next `import` is that of the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def _deferred(module: Deferred, name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: getattr(module.imported(), name)(*args, **kwargs)


@contextmanager
def prepared() -> Iterator[None]:
    """A process that learns or predicts: what estimators need is imported, and compiled programs are kept on disk."""
    atexit.register(gc.freeze)
    before = signal.signal(signal.SIGINT, end)
    with uncollected():
        import_scikit_learn()
        import_module("quantprop.estimators")
    signal.signal(signal.SIGINT, before)
    with kept_programs():
        yield


def import_scikit_learn() -> None:
    """What estimators need of scikit-learn."""
    with deferred("scipy.stats", FUNCTIONS), absent("pandas"):
        import_module("sklearn.gaussian_process")


@contextmanager
def deferred(name: str, functions: tuple[str, ...]) -> Iterator[None]:
    """While the block runs, `import name` imports nothing yet, unless it has been imported before."""
    module = Deferred(name, functions)
    sys.modules.setdefault(name, module)
    try:
        yield
    finally:
        module.leave()


@contextmanager
def absent(name: str) -> Iterator[None]:
    """While the block runs, `import name` fails as where it is not installed, unless it has been imported before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # pyright: ignore[reportArgumentType]  # as the reference of `import` has it
    try:
        yield
    finally:
        del sys.modules[name]
