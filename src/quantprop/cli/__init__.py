"""The command line: `quantprop`."""

from quantprop.cli.commands import app

__all__ = ["app"]
