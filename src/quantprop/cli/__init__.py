"""The command line: `quantprop`."""

import signal
from typing import TYPE_CHECKING, Any

from quantprop.cli.process import end

if TYPE_CHECKING:  # what `__getattr__` brings in on first use
    from quantprop.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command that the process was started with.

    Until it begins, and while it imports modules, an interrupt ends the process: an exception in the midst of an import
    brings a long trace, or none and a broken extension.
    """
    signal.signal(signal.SIGINT, end)
    from quantprop.cli.commands import app

    app(prog_name="quantprop")


def __getattr__(name: str) -> Any:
    if name == "app":
        from quantprop.cli.commands import app

        return app
    raise AttributeError(f"module 'quantprop.cli' has no attribute {name!r}")
