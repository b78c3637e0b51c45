"""Names that users give as text: an error lists those that there are, and the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def check_name(argument: str, given: Any, names: Iterable[str], also: str = "") -> None:
    """Raise where a name is none of those that there are; `also` says what else the argument may be."""
    names = tuple(names)
    if not isinstance(given, str) or given not in names:
        raise ValueError(f"{argument} must be one of {', '.join(names)}{also}; got {given!r}{nearest(given, names)}")


def nearest(given: Any, names: Iterable[Any]) -> str:
    """The end of such an error: which name may have been meant, nothing where none is near."""
    by_form = {str(name).casefold(): name for name in names}
    found = difflib.get_close_matches(given.casefold(), by_form, 1) if isinstance(given, str) else []
    return f" (did you mean {by_form[found[0]]!r}?)" if found else ""
