"""An extension of griffe, which reads docstrings for mkdocstrings: doctests become code blocks.

Markdown takes ``>>>`` for quotations. Everything from a prompt to the next empty line is fenced here.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*?(?=\n[ ]*\n|\Z)", re.MULTILINE | re.DOTALL)


def fenced(text: str) -> str:
    """The docstring with every doctest in a fence.

    >>> print(fenced("One.\\n\\n>>> 1 + 1\\n2").replace("`", "'"))
    One.
    <BLANKLINE>
    '''pycon
    >>> 1 + 1
    2
    '''
    """
    return DOCTEST.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class Doctests(Extension):
    """Fences the doctests of every docstring."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
