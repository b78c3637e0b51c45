"""An extension of griffe, which reads the sources for mkdocstrings.

Doctests become code blocks, because Markdown reads ``>>>`` as a quotation. Records get the signature of their fields,
since they have no written ``__init__``.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Class, Extension, Function, Object, Parameter, ParameterKind, Parameters

DOCTEST = re.compile(r"^>>> .*?(?=\n[ ]*\n|\Z)", re.MULTILINE | re.DOTALL)
DEFAULT = re.compile(r"default=([^,)]+\)?)")


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


def lineage(record: Class) -> list[Class] | None:
    """A record and the records it derives from, base first; None if it is no record."""
    if any(str(base) == "Record" for base in record.bases):
        return [record]
    for base in record.resolved_bases:
        above = lineage(base) if isinstance(base, Class) else None
        if above is not None:
            return [*above, record]
    return None


def fields(records: list[Class]) -> dict[str, str | None]:
    """The names of a record's fields, with their defaults as they are written."""
    found: dict[str, str | None] = {}
    for record in records:
        for name, member in record.members.items():
            if isinstance(member, Attribute) and "instance-attribute" in member.labels:
                found[name] = default_of(member)
    return found


def default_of(member: Attribute) -> str | None:
    """The default of a field, also where it is an argument of `field`."""
    text = None if member.value is None else str(member.value)
    if text is None or not text.startswith("field"):
        return text
    given = DEFAULT.search(text)
    return given.group(1) if given else None


class Records(Extension):
    """Fences doctests and writes the signatures of records."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_package(self, *, pkg: Any, **kwargs: Any) -> None:
        self._records(pkg)

    def _records(self, within: Any) -> None:
        for member in list(within.members.values()):
            if member.is_alias:
                continue
            if isinstance(member, Class) and "__init__" not in member.members:
                records = lineage(member)
                if records is not None:
                    self._sign(member, fields(records))
            if member.is_module:
                self._records(member)

    def _sign(self, record: Class, given: dict[str, str | None]) -> None:
        kind = ParameterKind.positional_or_keyword
        own = [Parameter(name, kind=kind, default=default) for name, default in given.items()]
        first = Parameter("self", kind=kind)
        record.set_member("__init__", Function("__init__", parameters=Parameters(first, *own)))
