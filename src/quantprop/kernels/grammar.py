"""The language of terms: text to a tree, by recursive descent. Nothing in it is evaluated.

    sum      = product { "+" product }
    product  = power { "*" power }
    power    = atom [ "**" number ]
    atom     = "(" sum ")" | name "(" [ column { "," column } ] { "," option } ")"
    column   = word | whole number | "quoted"
    option   = word ( "=" | "~" ) ( number | "[" number { "," number } "]" | "true" | "false" )

A number after "=" is held, one after "~" is where learning starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from quantprop.kernels.base import MAX_TERMS

TOKEN = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<word>[^\W\d][\w.]*)"
    r"""|(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')|(?P<mark>\*\*|[-+*(),=~\[\]]))"""
)
LONGEST = 10_000  # letters
DEEPEST = 30  # brackets inside brackets


class TermError(ValueError):
    """What is wrong with a text of terms, and where."""

    def __init__(self, text: str, at: int, why: str) -> None:
        shown = " ".join(text.split("\n"))
        start = max(0, at - 60)
        pointer = " " * (at - start) + "^"
        super().__init__(f"kernel, position {at + 1}: {why}\n  {shown[start : at + 60]}\n  {pointer}")
        self.position = at + 1


@dataclass(frozen=True)
class Token:
    """A piece of the text, what it is, and where it begins."""

    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class Named:
    """A column, by name or position, and where it stands."""

    column: str | int
    at: int


@dataclass(frozen=True)
class Option:
    """A setting of a term: numbers or a truth value; held, or where learning starts."""

    value: float | tuple[float, ...] | bool
    held: bool
    at: int


@dataclass(frozen=True)
class Call:
    """One term: its kind, its columns and its settings."""

    kind: str
    columns: tuple[Named, ...]
    options: dict[str, Option]
    at: int


@dataclass(frozen=True)
class Chain:
    """Parts with "+" or "*" between them."""

    symbol: str
    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Raised:
    """A part to a power."""

    base: Tree
    exponent: float


Tree = Call | Chain | Raised


def parsed(text: str) -> Tree:
    """The tree of a text, or an error that points at what is wrong."""
    if len(text) > LONGEST:
        raise TermError(text, LONGEST, f"longer than {LONGEST} letters")
    return _Reader(text, _tokens(text)).whole()


def _tokens(text: str) -> list[Token]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            quote = "a quote opens and is never closed" if text[at] in "\"'" else f"{text[at]!r} has no meaning here"
            raise TermError(text, at, quote)
        found.append(Token(match.lastgroup, match.group(match.lastgroup), match.start(match.lastgroup)))
        at = match.end()
    return [*found, Token("end", "", len(text))]


class _Reader:
    """The tokens of a text, read from left to right."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text, self.tokens, self.at, self.depth, self.terms = text, tokens, 0, 0, 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def fail(self, token: Token, why: str) -> NoReturn:
        raise TermError(self.text, token.at, why)

    def take(self) -> Token:
        token = self.next
        self.at += token.kind != "end"
        return token

    def marked(self, mark: str) -> bool:
        """Whether the next token is a mark; it is taken then."""
        found = self.next.kind == "mark" and self.next.text == mark
        self.at += found
        return found

    def expect(self, mark: str, what: str) -> None:
        if not self.marked(mark):
            self.fail(self.next, f"{what} must follow here, not {_said(self.next)}")

    def whole(self) -> Tree:
        tree = self.chain("+", lambda: self.chain("*", self.power))
        if self.next.kind != "end":
            self.fail(self.next, f"'+', '*' or the end must follow here, not {_said(self.next)}")
        return tree

    def chain(self, symbol: str, part) -> Tree:
        parts = [part()]
        while self.marked(symbol):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Chain(symbol, tuple(parts))

    def power(self) -> Tree:
        base = self.atom()
        if not self.marked("**"):
            return base
        token = self.take()
        if token.kind != "number" or not 0 < float(token.text) < 100:
            self.fail(token, f"a power is a number between 0 and 100, not {_said(token)}")
        return Raised(base, float(token.text))

    def atom(self) -> Tree:
        token = self.take()
        if token.kind == "mark" and token.text == "(":
            self.depth += 1
            if self.depth > DEEPEST:
                self.fail(token, f"more than {DEEPEST} brackets inside each other")
            inside = self.chain("+", lambda: self.chain("*", self.power))
            self.expect(")", "')'")
            self.depth -= 1
            return inside
        if token.kind != "word":
            self.fail(token, f"a term such as se(age) must stand here, not {_said(token)}")
        self.terms += 1
        if self.terms > MAX_TERMS:
            self.fail(
                token, f"more than {MAX_TERMS} terms: one can take several columns, as se(age, dose, ard=true) does"
            )
        self.expect("(", f"'(' after {token.text!r}, as in {token.text}(age),")
        return self.arguments(token)

    def arguments(self, name: Token) -> Call:
        columns: list[Named] = []
        options: dict[str, Option] = {}
        if self.marked(")"):
            return Call(name.text, (), {}, name.at)
        while True:
            token = self.take()
            if token.kind == "word" and self.next.kind == "mark" and self.next.text in ("=", "~"):
                if token.text in options:
                    self.fail(token, f"{token.text!r} was given before")
                options[token.text] = Option(*self.value(), token.at)
            elif options:
                self.fail(
                    token, f"an option such as lengthscale=2 must stand here, not {_said(token)}: columns come first"
                )
            else:
                columns.append(self.column(token))
            if self.marked(")"):
                return Call(name.text, tuple(columns), options, name.at)
            self.expect(",", "',' or ')'")

    def column(self, token: Token) -> Named:
        if token.kind == "word":
            return Named(token.text, token.at)
        if token.kind == "quoted":
            quote = token.text[0]
            return Named(token.text[1:-1].replace(2 * quote, quote), token.at)
        if token.kind == "number" and token.text.isdigit() and len(token.text) < 10:
            return Named(int(token.text), token.at)
        self.fail(token, f"a column must stand here, by name or position, not {_said(token)}")

    def value(self) -> tuple[float | tuple[float, ...] | bool, bool]:
        held = self.take().text == "="
        if self.next.kind == "word" and self.next.text in ("true", "false"):
            return self.take().text == "true", held
        if not self.marked("["):
            return self.number(), held
        numbers = [self.number()]
        while self.marked(","):
            numbers.append(self.number())
        self.expect("]", "',' or ']'")
        return tuple(numbers), held

    def number(self) -> float:
        token = self.take()
        if token.kind != "number" or abs(float(token.text)) > 1e300:
            self.fail(token, f"a number must stand here, not {_said(token)}")
        return float(token.text)


def _said(token: Token) -> str:
    return "the end of the text" if token.kind == "end" else token.text if token.kind == "quoted" else repr(token.text)
