"""The command line: `quantprop`."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; an interrupt ends it without a traceback, also while modules are still being imported."""
    try:
        from quantprop.cli.commands import app

        app(prog_name="quantprop")
    except KeyboardInterrupt:
        sys.exit(130)


def __getattr__(name: str) -> Any:
    """The application, which is imported when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quantprop.cli.commands import app

    return app
