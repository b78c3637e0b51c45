"""Names that users pass as text: errors list the known ones, and the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def check_name(argument: str, given: Any, names: Iterable[str], also: str = "") -> None:
    """Raise for an unknown name; `also` tells in words which other values the argument may have."""
    names = tuple(names)
    if not isinstance(given, str) or given not in names:
        raise ValueError(f"{argument} must be one of {', '.join(names)}{also}; got {given!r}{nearest(given, names)}")


def nearest(given: Any, names: Iterable[Any]) -> str:
    """The end of such an error: the nearest name, or nothing."""
    by_form = {str(name).casefold(): name for name in names}
    found = difflib.get_close_matches(given.casefold(), by_form, 1) if isinstance(given, str) else []
    return f" (did you mean {by_form[found[0]]!r}?)" if found else ""
