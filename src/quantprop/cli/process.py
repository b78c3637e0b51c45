"""The end of a command by an interrupt."""

import os
from typing import Any

INTERRUPTED = 130


def end(number: int, frame: Any) -> None:
    """End the process at once, on an interrupt."""
    os.write(2, b"stopped; nothing was written\n")
    os._exit(INTERRUPTED)
