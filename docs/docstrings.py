"""An extension of griffe, which reads the sources for mkdocstrings.

Doctests become code blocks: Markdown takes ``>>>`` for quotations. Records get the signature that
their fields give them, since no ``__init__`` is written anywhere. And functions and records that do not list their
arguments get a table of them, from arguments.toml: the same ones recur all over the library.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from griffe import Attribute, Class, Extension, Function, Object, Parameter, ParameterKind, Parameters

DOCTEST = re.compile(r"^>>> .*?(?=\n[ ]*\n|\Z)", re.MULTILINE | re.DOTALL)
DEFAULT = re.compile(r"default=([^,)]+\)?)")
MEANINGS = tomllib.loads((Path(__file__).parent / "arguments.toml").read_text(encoding="utf-8"))


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


def meanings(path: str) -> dict[str, str]:
    """What the arguments of a function or record mean, by its path: those of its own before the shared ones."""
    own = [MEANINGS[name] for name in MEANINGS if name != "shared" and f".{path}".endswith(f".{name}")]
    return MEANINGS["shared"] | {name: text for table in own for name, text in table.items()}


def with_arguments(text: str, names: list[str], path: str) -> str:
    """A docstring with a list of its arguments before the examples, unless it lists arguments or fields itself."""
    known = meanings(path)
    lines = [f"    {name}: {known[name]}" for name in names if name in known]
    if not lines or "Args:" in text or "Attributes:" in text:
        return text
    start = text.find("```pycon")
    before, after = (text, "") if start < 0 else (text[:start], text[start:])
    return "\n".join([before.rstrip(), "", "Args:", *lines, "", after]).rstrip()


class Records(Extension):
    """Fences doctests, writes the signatures of records, and lists arguments."""

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
            if isinstance(member, (Class, Function)) and member.docstring is not None:
                self._argue(member)
            if member.is_module:
                self._records(member)

    def _argue(self, member: Class | Function) -> None:
        names = [parameter.name for parameter in member.parameters if parameter.name != "self"]
        assert member.docstring is not None
        member.docstring.value = with_arguments(member.docstring.value, names, member.path)

    def _sign(self, record: Class, given: dict[str, str | None]) -> None:
        kind = ParameterKind.positional_or_keyword
        own = [Parameter(name, kind=kind, default=default) for name, default in given.items()]
        first = Parameter("self", kind=kind)
        record.set_member("__init__", Function("__init__", parameters=Parameters(first, *own)))
