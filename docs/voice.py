"""Count stilted expressions in README.md, docs and src: none on users' pages, at most CEILING elsewhere.

Run from anywhere: ``python docs/voice.py`` (`make lint` does). Exits with 1 and one line per hit if there are too many.
Each line is read by itself; case is ignored except in patterns that begin with ``(?-i:``. The comment after a pattern
says what to write instead. Some hits are false positives. Lower the ceiling when there are fewer; do not raise it.

Recurring constructions are counted in prose only, that is pages without code and link targets, and messages in src:
at most MAX_CONSTRUCTIONS, since some are right where they stand. ``python docs/voice.py constructions`` lists them.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CEILING = 0
USERS = ("README.md", "docs/index.md", "docs/start/", "docs/guides/")

EXPRESSIONS = (
    r"(?-i:^[A-Z][A-Z_, ]+ = .*  # (of|at most|at least|and|by|below|above|beyond|up to|from)\b)",  # into the name
    r"\bby hand\b",  # one-off measurement
    r"(?-i:^(MOST|FEW|MANY|FLAT|SURE|ALIKE|REACH|SHARE|LOST|WIDE|FAR|NEAR|CALM|BLUR|DOUBT|ENOUGH|SOME)"
    r"\b(?=.*=))",  # name what is counted or limited
    r'(?-i:"""(Of|That of|Those of|What|How|Whether)\b)',  # noun and verb
    r"\bgo(es)? on (from|by|with|along|to|until|without|linearly)\b",  # continues
    r"\bless (EP|VB|QP|Laplace|the truth|that of|those of|another's|the prior's)",  # minus
    r"\b(be told apart|can be told|cannot be told|told from chance|beyond chance)\b",  # significant; distinguished
    r"\b(numbers|operations|nats|bytes|evaluations|sweeps) a (row|sweep|point|datum|fit|pass|step)\b",  # per
    r"\bfew nodes\b",  # the small quadrature rule
    r"[,;:.] else (a|an|the|from|as|one|by|on|of|to|it|inducing|without|what|half|f|y|with|none)\b",  # otherwise
    r"\bso many (?!of\b)\w+",  # the given number of
    r"\b(kernel|likelihood|prior|process|library|mean)'s (own )?numbers\b|\blearned numbers\b",  # hyperparameters
    r"(?<!there )\b(is|are) no (covariance|list|row|label|level|file|text|real|plain|forecast|bound|gain|failure|fault"
    r"|density|error|number|columns?)\b",  # is not a
    r"\b(not|never) learned from\b",  # unseen in training
    r"\blanguage of terms\b",  # kernel formula
    r"\bto the last bit\b|\bthe same bits\b",  # bitwise identical
    r"\b(anew|afresh)\b",  # again
    r"\bin the place of\b",  # instead of
    r"\bprocessor seconds\b|\bby the clock\b",  # CPU seconds; wall-clock
    r"\bbut for\b",  # except for
    r"\bby turns\b",  # interleaved
    r"\btruth values?\b|\bcolumns? of words\b",  # booleans; text columns
    r"\bprocess is held\b|\bhold(s|ing)? (the|a) process\b",  # is represented
    r"\b(it|model) has other\b|\bmodels are others\b",  # unexpected or missing entries
    r"\btaken for\b",  # treated as; mistaken for
    r"\bwhole or not at all\b",  # atomically
    r"\b(is|are) none of the\b",  # is not one of the
    r"\b(mended|foretold|come to rest|dealt out)\b",  # fixed; extrapolated; converge; distributed
    r"\b(is|are) not there for\b",  # is not supported with
    r"\bsaid aloud\b",  # printed; a warning is raised
    r"\bshall\b",  # should, can
)
PATTERNS = [re.compile(expression, re.IGNORECASE) for expression in EXPRESSIONS]

MAX_CONSTRUCTIONS = 150
# Not counted: held-out rows, standard deviations, "there is no", "is no longer", "least recently used".
CONSTRUCTIONS = re.compile(
    r"\b(what (it|they|the|a|an|is|no|one|this|each|all|was|are)|landscapes?|(that|those) of"  # the noun
    r"|held(?![ -]out)|kept|settled?|renew(s|ed|ing|als?)?"  # fixed, cached; resolved; update
    r"|shares?|slopes?|forecasts?|(?<!standard )deviations?|spread|divisions?|pictures?|truths?"
    r"|where (it|they|there|that|this|these|those|one|no|few|sites|sweeps|rows|some|none|nothing)"  # if, when
    r"|told|says?|(say|says|said) so|sees|knows?|wants?|believes?|beliefs?|doubts?|stands?|refuse[ds]?"
    r"|(learned|plain|own|its|their|no|all|whose|these|kernel's|likelihood's|prior's) numbers"  # hyperparameters
    r"|by hand|few nodes|beside|slack|on the way|by name|by turns|but for|stand_in|blind(ness)?|language of terms"
    r"|(a|each|every|one|the|of|per|any|this|its) datum"  # observation
    r"|less (EP|VB|QP|Laplace|the|that|those|its|another|what)"  # minus
    r"|be told|told from|beyond chance|from chance|apart(?! from)|in (the )?place of|learned from|so many"
    r"|(go|goes|going|gone) on|of (its|their) own|in the (mean|median)|the (least(?! recently)|greatest)"
    r"|(an|every|each|poor|better|lower|suspicious|its|whose|two|these) ends?"  # optimum; stopping reason
    r"|(numbers|operations|nats|bytes|evaluations|sweeps|rows|seconds) a (row|sweep|point|datum|fit|pass|step|part)"
    r"|climb(ed|s)?|another (kernel|likelihood|method|model|matter|local|start|way|optimum|y|link|shape|exposure|unit"
    r"|objective|search|order|scale)|give (it|the|a|an|one|none|all|other|each|those|that|more|them|both)"
    r"|(left|leaves?) (out|aside)|several (classes|outputs|functions)|without (it|one|them)|not there|has other"
    r"|a (third|quarter|fifth|sixth|tenth|twentieth)|(?<!there )is no(?! (longer|slower|better|worse|more))"
    r"|mended|faults?|(is|are|was|be) right|right to|how (it|learning|inference|integration|a fit|each) (ended|went)"
    r"|the same bits|to the last bit|whole numbers?|process is held|holds? (the|a) process)\b"
    r"|, else\b",
    re.IGNORECASE,
)


class Hit(NamedTuple):
    """An expression on a line."""

    path: str
    line: int
    text: str


def hits_in(path: str, text: str) -> Iterator[Hit]:
    """All expressions of a text.

    >>> [hit.text for hit in hits_in("a.md", "measured by hand\\nand by turns")]
    ['by hand', 'by turns']
    """
    for k, line in enumerate(text.splitlines(), start=1):
        for pattern in PATTERNS:
            for found in pattern.finditer(line):
                yield Hit(path, k, found.group())


def prose_of(page: str) -> str:
    """A page without code, comments and the targets of links; its lines keep their numbers.

    >>> prose_of("[a `b`](c.md)\\n```python\\nd\\n```")
    '[a ]\\n\\n\\n'
    """
    code = r"^ *```.*?^ *```$|^(?: {4,}|:::)[^\n]*$|`[^`\n]*`|(?<=\])\([^)\n]*\)|<!--.*?-->|<code>.*?</code>"
    return re.sub(code, lambda found: "\n" * found.group().count("\n"), page, flags=re.DOTALL | re.MULTILINE)


def messages_of(module: str) -> Iterator[tuple[int, str]]:
    """The lines and texts of a module's strings of several words, without docstrings."""
    tree = ast.parse(module)
    stated = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in stated:
            yield node.lineno, prose_of(node.value) * (" " in node.value)


def constructions_in(path: str, text: str) -> Iterator[Hit]:
    """All recurring constructions of a page's prose, or of a module's messages."""
    parts = messages_of(text) if path.endswith(".py") else enumerate(prose_of(text).splitlines(), start=1)
    for line, part in parts:
        for found in CONSTRUCTIONS.finditer(part):
            yield Hit(path, line, found.group())


def files() -> Iterator[Path]:
    """What is searched: README.md, the pages without stored results, and the sources."""
    yield ROOT / "README.md"
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "results" not in page.parts:
            yield page
    yield from sorted((ROOT / "src").rglob("*.py"))


def hits(find: Callable[[str, str], Iterator[Hit]]) -> list[Hit]:
    """All hits that `find` has in the files."""
    names = ((path, path.relative_to(ROOT).as_posix()) for path in files())
    return [hit for path, name in names for hit in find(name, path.read_text(encoding="utf-8"))]


def main() -> int:
    """Print the hits if there are too many; return 1 then."""
    found, recurring = hits(hits_in), hits(constructions_in)
    users = [hit for hit in found if hit.path.startswith(USERS)]
    too_many = found if len(found) > CEILING else users
    too_many_recur = len(recurring) > MAX_CONSTRUCTIONS
    for hit in [*too_many, *(recurring if too_many_recur or "constructions" in sys.argv else ())]:
        print(f"{hit.path}:{hit.line}: {hit.text}")
    print(f"{len(found)} stilted expressions (at most {CEILING}), {len(users)} of them on users' pages (none allowed)")
    print(f"{len(recurring)} recurring constructions in prose and messages (at most {MAX_CONSTRUCTIONS})")
    return 1 if too_many or too_many_recur else 0


if __name__ == "__main__":
    sys.exit(main())
