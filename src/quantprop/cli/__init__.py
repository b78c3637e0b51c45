"""The command line: `quantprop`."""

import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` brings in on first use
    from quantprop.cli.commands import app

__all__ = ["app", "main"]
INTERRUPTED = 130


def main() -> None:
    """Run the command that the process was started with.

    Until it begins, and while it imports modules, an interrupt ends the process: an exception in the midst of an import
    brings a long trace, or none and a broken extension.
    """
    signal.signal(signal.SIGINT, end)
    from quantprop.cli.commands import app

    app(prog_name="quantprop")


def end(number: int, frame: Any) -> None:
    """End the process at once, on an interrupt."""
    os.write(2, b"stopped; nothing was written\n")
    os._exit(INTERRUPTED)


def __getattr__(name: str) -> Any:
    if name == "app":
        from quantprop.cli.commands import app

        return app
    raise AttributeError(f"module 'quantprop.cli' has no attribute {name!r}")
