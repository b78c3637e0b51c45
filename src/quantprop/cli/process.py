"""Shortcuts of a process that runs one command: its end by an interrupt, and a faster import of scikit-learn."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

INTERRUPTED = 130


def end(number: int, frame: Any) -> None:
    """End the process at once, on an interrupt."""
    os.write(2, b"stopped; nothing was written\n")
    os._exit(INTERRUPTED)


class Deferred(ModuleType):
    """Replaces scipy.stats while scikit-learn is imported, which takes `rankdata` from it and calls it later."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # as a package has it

    def rankdata(self, *args: Any, **kwargs: Any) -> Any:
        """The function of that name, imported when it is called."""
        return self.__getattr__("rankdata")(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), name)

    def leave(self) -> None:
        """Let the next import find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def import_scikit_learn() -> None:
    """Import what estimators need of scikit-learn, without pandas and scipy.stats: 20 % of the time of a `predict`."""
    stats, has_pandas = Deferred("scipy.stats"), "pandas" in sys.modules
    sys.modules.setdefault("scipy.stats", stats)
    sys.modules.setdefault("pandas", None)  # pyright: ignore[reportArgumentType]  # an import of it fails
    try:
        import_module("sklearn.gaussian_process")
    finally:
        stats.leave()
        if not has_pandas:
            del sys.modules["pandas"]
