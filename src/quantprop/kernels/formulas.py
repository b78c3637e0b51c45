"""Formulas as lme4, brms and mgcv write them, read as trees of our own terms. Nothing in them is evaluated.

    y ~ age + s(dose) + sex:dose + (1 | hospital)      linear(age) + se(dose) + linear(sex) * linear(dose)
                                                       + group(hospital) + constant()
    (1 | school/class)                                 group(school) + group(school, class)
    (1 + days || subject)                              group(subject) + linear(days) * group(subject)
    (1 + days | subject)                               the same with linear(days, centre~mean): correlated
    (1 + days + dose | subject)                        lines(days, dose) * group(subject): all correlated

Names alone are linear terms after `y ~`, where the intercept is implied, as in R. Elsewhere only bars, `:` and the
smooth terms are added to our own grammar.
"""

from __future__ import annotations

import math
from functools import reduce

from quantprop.kernels.derived import FUNCTIONS
from quantprop.kernels.grammar import EVERY, Call, Chain, Named, Option, Reader, Token, Tree, quoted, tokens_of

SMOOTHS = ("s", "te", "t2", "gp", "poly")
MGCV_BASES = ("tp", "ts", "cr", "cs", "ps", "bs", "gp")
STRENGTH = ("+", "*", "**")
CROSSED = "'*' crosses terms in R and multiplies kernels here: write a + b + a:b, or a:b for the product alone"


def parsed(text: str) -> Tree:
    """The tree of a text, or an error that points at what is wrong."""
    return _FormulaReader(text, tokens_of(text)).whole()


def is_formula(text: str) -> bool:
    """True if a text is a formula, not the name of a kernel."""
    return "(" in text or "~" in text


def response_of(text: str) -> str | int | None:
    """The column before `~`, if there is one."""
    reader = _FormulaReader(text, tokens_of(text))
    reader.whole()
    return reader.column(reader.tokens[0]) if reader.bare else None


def told(tree: Tree, within: str = "+") -> str:
    """A tree as text in our own terms."""
    if isinstance(tree, Chain):
        parts = [told(part, tree.symbol) for part in tree.parts]
        text = f"{parts[0]} ** {tree.exponent:g}" if tree.symbol == "**" else f" {tree.symbol} ".join(parts)
        return f"({text})" if STRENGTH.index(tree.symbol) < STRENGTH.index(within) else text
    options = [f"{name}{'=' if option.fixed else '~'}{_value(option.value)}" for name, option in tree.options.items()]
    columns = ["*" if named.column == EVERY else quoted(named.column) for named in tree.columns]
    return f"{tree.kind}({', '.join([*columns, *options])})"


def terms_of(tree: Tree) -> list[Call]:
    """All terms of a tree, from left to right."""
    return [tree] if isinstance(tree, Call) else [call for part in tree.parts for call in terms_of(part)]


def is_wide(tree: Tree) -> bool:
    """True if a term has a vague prior, or is known: a level, a slope, a factor, slopes that differ between levels of
    factors, or an offset.
    """
    kinds = [call.kind for call in terms_of(tree)]
    crossed = "factor" in kinds and kinds.count("linear") < 2 and {*kinds} <= {"factor", "linear"}
    return crossed or kinds in (["linear"], ["constant"], ["offset"])


def summed(tree: Tree) -> tuple[Tree, ...]:
    """The parts of a sum; one, where it is none."""
    return tree.parts if isinstance(tree, Chain) and tree.symbol == "+" else (tree,)


def known_and_unknown(tree: Tree) -> tuple[list[Call], tuple[Tree, ...]]:
    """The offsets of a sum, whose coefficient is 1, and its other terms."""
    offsets = [part for part in summed(tree) if isinstance(part, Call) and part.kind == "offset"]
    return offsets, tuple(part for part in summed(tree) if part not in offsets)


def _value(value: float | tuple[float, ...] | bool | str) -> str:
    if isinstance(value, (bool, str)):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return "mean" if math.isnan(value) else f"{value:g}"


def _product(first: Tree, second: Tree) -> Chain:
    return Chain("*", (first, second))


class _FormulaReader(Reader):
    """The tokens of a text, and whether it began with `y ~`."""

    bare = False

    def whole(self) -> Tree:
        if self.tokens[0].kind in ("word", "quoted") and self.tokens[1].text == "~":
            self.at, self.bare = 2, True
        return super().whole()

    def sum(self) -> Tree:
        return super().sum() if not self.bare or self.depth else self.with_intercept()

    def with_intercept(self) -> Tree:
        """The right side of a formula: 1 and 0 (or -1) say whether there is an intercept."""
        parts: list[Tree] = []
        intercept, more = True, True
        while more:
            if self.marked("-"):
                intercept = not self.is_one(self.take())
            elif self.next.kind == "number":
                intercept = self.is_one(self.take())
            else:
                term = self.power()
                parts += term.parts if isinstance(term, Chain) and term.symbol == "+" else [term]
            if self.next.text == "*":
                self.fail(self.next, CROSSED)
            more = self.marked("+") or self.next.text[:1] in ("+", "-")
        parts += [Call("constant", (), {}, 0)] if intercept else []
        if not parts:
            self.fail(self.next, "a formula without an intercept needs a term")
        return parts[0] if len(parts) == 1 else Chain("+", tuple(parts))

    def is_one(self, token: Token) -> bool:
        if token.text not in ("1", "0", "+1", "+0", "-1"):
            self.fail(token, f"an intercept is 1 or 0, not {token}")
        return token.text in ("1", "+1")

    def power(self) -> Tree:
        """A term, or several with ":" between them: their product."""
        parts = [super().power()]
        while self.marked(":"):
            parts.append(super().power())
        return reduce(_product, parts)

    def atom(self) -> Tree:
        token, after = self.next, self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if token.text == "(" and self.has_bar():
            self.at += 1
            return self.by_group(token)
        if token.kind == "word" and after.text == "(" and token.text in SMOOTHS:
            self.count_term(self.take())
            self.at += 1
            return self.smooth(token)
        derived = token.text in FUNCTIONS
        if self.bare and token.kind in ("word", "quoted") and (derived or after.text != "("):
            self.count_term(token)
            return self.linear(self.named())
        return super().atom()

    def linear(self, column: Named, **options: Option) -> Call:
        return Call("linear", (column,), options, column.at)

    def has_bar(self) -> bool:
        """True if the bracket that opens here holds a bar of its own."""
        depth = 0
        for token in self.tokens[self.at :]:
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0 or (depth == 1 and token.kind == "mark" and token.text in ("|", "||")):
                return depth == 1
        return False

    def by_group(self, opening: Token) -> Tree:
        """(effects | group): a level, and slopes, for each level of the group."""
        slopes, level, more = [], True, True
        while more:
            if self.next.kind == "number":
                level = self.is_one(self.take())
            else:
                self.count_term(self.next)
                slopes.append(self.named())
            more = self.marked("+")
        bar = self.take()
        if bar.text not in ("|", "||"):
            self.fail(bar, f"'+' or '|' must follow here, not {bar}")
        correlated = bar.text == "|" and level and bool(slopes)
        if bar.text == "|" and not level and len(slopes) > 1:
            self.fail(opening, "correlated slopes need a level, (1 + a + b | g): write '||' for independent ones")
        groups = self.groups(opening)
        self.expect(")", "')'")
        option = {"centre": Option(math.nan, False, opening.at)} if correlated else {}
        found: list[Tree] = []
        if correlated and len(slopes) > 1:
            lines = Call("lines", tuple(slopes), {}, opening.at)
            found += [_product(lines, group) for group in groups]
            groups = []
        for group in groups:
            found += [group] if level else []
            found += [_product(self.linear(slope, **option), group) for slope in slopes]
        if not found:
            self.fail(opening, "a group needs an effect: write (1 | group)")
        return found[0] if len(found) == 1 else Chain("+", tuple(found))

    def groups(self, opening: Token) -> list[Call]:
        """The groups after a bar: a:b is one of both columns, a/b is a and a:b."""
        columns, found = [self.named()], []
        while self.marked("/", ":"):
            if self.tokens[self.at - 1].text == "/":
                found.append(tuple(columns))
            columns.append(self.named())
        every = [*found, tuple(columns)]
        for _ in every:
            self.count_term(opening)
        return [Call("group", group, {}, opening.at) for group in every]

    def named(self) -> Named:
        token = self.take()
        return Named(self.column(token), token.at)

    def smooth(self, name: Token) -> Tree:
        """A smooth term of mgcv or brms, or a polynomial."""
        columns, by, basis, more = [], None, "tp", True
        while more:
            token = self.next
            if token.kind == "word" and self.tokens[self.at + 1].text == "=":
                self.at += 2
                if token.text == "by":
                    by = Call("group", (self.named(),), {}, token.at)
                elif token.text == "bs" and self.next.kind == "quoted":
                    basis = self.take().text[1:-1]
                else:
                    self.fail(token, f"{token.text} has no counterpart here: leave it out")
            else:
                columns.append(self.named())
            more = self.marked(",")
        self.expect(")", "',' or ')'")
        found = self.smooth_of(name, tuple(columns), basis)
        return found if by is None else _product(found, by)

    def smooth_of(self, name: Token, columns: tuple[Named, ...], basis: str) -> Tree:
        if name.text == "poly":
            return self.polynomial(name, columns)
        if basis == "re":
            return Call("group", columns, {}, name.at)
        if basis not in MGCV_BASES:
            self.fail(
                name, f"the basis {basis!r} has no counterpart: periodic(x, period=12) is cyclic, group(x) random"
            )
        ard = {"ard": Option(True, True, name.at)} if name.text in ("te", "t2") and len(columns) > 1 else {}
        return Call("se", columns, ard, name.at)

    def polynomial(self, name: Token, columns: tuple[Named, ...]) -> Tree:
        """poly(x, 3): linear(x) and its powers."""
        degree = columns[-1].column
        if len(columns) != 2 or not isinstance(degree, int) or not 1 <= degree <= 5:
            self.fail(name, "poly takes a column and a degree from 1 to 5, as in poly(age, 2)")
        line = Call("linear", columns[:1], {}, name.at)
        parts = [line, *(Chain("**", (line,), float(power)) for power in range(2, degree + 1))]
        return line if degree == 1 else Chain("+", tuple(parts))
