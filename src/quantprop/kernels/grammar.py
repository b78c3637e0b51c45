"""Kernel formulas: text to a tree, by recursive descent. Nothing in it is evaluated.

    sum      = product { "+" product }
    product  = power { "*" power }
    power    = atom [ "**" number ]
    atom     = "(" sum ")" | name "(" [ column { "," column } ] { "," option } ")"
    column   = word | whole number | "quoted" | "*" | function "(" ( word | "quoted" ) ")"
    option   = word ( "=" | "~" ) ( number | "[" number { "," number } "]" | "true" | "false" | "mean" | shape )

A number after "=" is fixed, one after "~" is where learning starts; "*" stands for all columns that no term names.
A shape is increasing, decreasing, convex or concave, or the coding of a factor, treatment or sum; a function is log,
log2, log10, log1p, sqrt, exp or missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from quantprop.kernels.derived import FUNCTIONS, Derived
from quantprop.kernels.size import MAX_TERMS
from quantprop.runtime.names import nearest

TOKEN = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<word>[^\W\d][\w.]*)"
    r"""|(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')|(?P<mark>\*\*|\|\|?|[-+*(),=~:/\[\]]))"""
)
PLAIN = re.compile(r"[^\W\d][\w.]*")
MAX_LETTERS = 10_000  # letters
MAX_BRACKETS = 30  # brackets inside brackets
EVERY = -1  # the column "*"


class TermError(ValueError):
    """Error in a kernel formula, with its place.

    Args:
        text: The formula.
        at: Position of the error.
        why: What is wrong.
    """

    def __init__(self, text: str, at: int, why: str) -> None:
        shown = " ".join(text.split("\n"))
        start = max(0, at - 60)
        pointer = " " * (at - start) + "^"
        super().__init__(f"kernel, position {at + 1}: {why}\n  {shown[start : at + 60]}\n  {pointer}")
        self.position = at + 1


class Token(NamedTuple):
    """A piece of the text, its kind, and where it begins."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return {"end": "the end of the text", "quoted": self.text}.get(self.kind, repr(self.text))


class Named(NamedTuple):
    """A column, by name or position, and where it stands."""

    column: str | int
    at: int


class Option(NamedTuple):
    """A setting of a term: numbers or a boolean; fixed, or where learning starts."""

    value: Any
    fixed: bool
    at: int


class Call(NamedTuple):
    """One term: its kind, its columns and its settings."""

    kind: str
    columns: tuple[Named, ...]
    options: dict[str, Option]
    at: int


class Chain(NamedTuple):
    """Parts with "+" or "*" between them, or one part to a power ("**")."""

    symbol: str
    parts: tuple[Call | Chain, ...]
    exponent: float = 1.0


Tree = Call | Chain


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, the last of which is its end."""
    if len(text) > MAX_LETTERS:
        raise TermError(text, MAX_LETTERS, f"longer than {MAX_LETTERS} letters")
    found, at = [], 0
    while at < len(text.rstrip()):
        match = TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            meaningless = f"{text[at]!r} is not part of a formula"
            raise TermError(text, at, "this quote is never closed" if text[at] in "\"'" else meaningless)
        found.append(Token(match.lastgroup, match.group(match.lastgroup), match.start(match.lastgroup)))
        at = match.end()
    return [*found, Token("end", "", len(text))]


class Reader:
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

    def marked(self, *marks: str) -> bool:
        """Return whether the next token is one of these marks; if so, it is taken."""
        found = self.next.kind == "mark" and self.next.text in marks
        self.at += found
        return found

    def expect(self, mark: str, expected: str) -> None:
        if not self.marked(mark):
            self.fail(self.next, f"expected {expected}, not {self.next}")

    def whole(self) -> Tree:
        tree = self.sum()
        if self.next.kind != "end":
            self.fail(self.next, f"expected '+', '*' or the end, not {self.next}")
        return tree

    def sum(self) -> Tree:
        return self.chain("+", lambda: self.chain("*", self.power))

    def chain(self, symbol: str, part: Callable[[], Tree]) -> Tree:
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
            self.fail(token, f"expected a power between 0 and 100, not {token}")
        return Chain("**", (base,), float(token.text))

    def atom(self) -> Tree:
        token = self.next
        if self.marked("("):
            self.depth += 1
            if self.depth > MAX_BRACKETS:
                self.fail(token, f"brackets nested more than {MAX_BRACKETS} deep")
            inside = self.sum()
            self.expect(")", "')'")
            self.depth -= 1
            return inside
        if self.take().kind != "word":
            self.fail(token, f"expected a term such as se(age), not {token}")
        self.terms += 1
        if self.terms > MAX_TERMS:
            several = "one term can take several columns, as in se(age, dose, ard=true)"
            self.fail(token, f"more than {MAX_TERMS} terms: {several}")
        self.expect("(", f"'(' after {token.text!r}, as in {token.text}(age),")
        return self.call(token)

    def count_term(self, token: Token) -> None:
        """Raise for more terms than one kernel may have."""
        self.terms += 1
        if self.terms > MAX_TERMS:
            several = "one can take several columns, as se(age, dose, ard=true) does"
            self.fail(token, f"more than {MAX_TERMS} terms: {several}")

    def call(self, name: Token) -> Call:
        columns: list[Named] = []
        options: dict[str, Option] = {}
        done = self.marked(")")
        while not done:
            token = self.take()
            if token.kind == "word" and self.marked("=", "~"):
                if token.text in options:
                    self.fail(token, f"{token.text!r} is given twice")
                fixed = self.tokens[self.at - 1].text == "="
                is_word = token.text in ("monotone", "coding") and self.next.kind == "word"
                options[token.text] = Option(self.take().text if is_word else self.value(), fixed, token.at)
            elif options:
                self.fail(token, f"expected an option such as lengthscale=2, not {token}: columns come first")
            else:
                columns.append(Named(self.column(token), token.at))
            done = self.marked(")")
            if not done:
                self.expect(",", "',' or ')'")
        return Call(name.text, tuple(columns), options, name.at)

    def column(self, token: Token) -> str | int:
        if token.kind == "word" and self.next.text == "(":
            return self.derived(token)
        if token.kind == "word":
            return token.text
        if token.kind == "quoted":
            quote = token.text[0]
            return token.text[1:-1].replace(2 * quote, quote)
        if token.kind == "number" and token.text.isdigit() and len(token.text) < 10:
            return int(token.text)
        if token.kind == "mark" and token.text == "*":
            return EVERY
        self.fail(token, f"expected a column, by name or position, not {token}")

    def derived(self, function: Token) -> str:
        """A function of a column, named as it is written, without quotes."""
        if function.text not in FUNCTIONS:
            there = f"functions of a column are {', '.join(FUNCTIONS)}"
            self.fail(function, f"{function} is not a function; {there}{nearest(function.text, FUNCTIONS)}")
        self.take()
        inner = self.take()
        if inner.kind not in ("word", "quoted") or self.next.text == "(":
            self.fail(inner, f"{function.text} takes a column by name, as in {function.text}(dose), not {inner}")
        column = self.column(inner)
        self.expect(")", "')'")
        return f"{function.text}({column})"

    def value(self) -> float | tuple[float, ...] | bool:
        if self.next.kind == "word" and self.next.text in ("true", "false"):
            return self.take().text == "true"
        if self.next.kind == "word" and self.next.text == "mean":
            self.take()
            return math.nan
        if not self.marked("["):
            return self.number()
        numbers = [self.number()]
        while self.marked(","):
            numbers.append(self.number())
        self.expect("]", "',' or ']'")
        return tuple(numbers)

    def number(self) -> float:
        token = self.take()
        if token.kind != "number" or abs(float(token.text)) > 1e300:
            self.fail(token, f"expected a number, not {token}")
        return float(token.text)


def quoted(column: str | int) -> str:
    """A column as formulas write it: in quotes unless it is a plain word, or a function of a column."""
    if (found := Derived.of(column)).function:
        return f"{found.function}({quoted(found.source)})"
    if isinstance(column, int) or PLAIN.fullmatch(column):
        return str(column)
    doubled = column.replace('"', '""')
    return f'"{doubled}"'
