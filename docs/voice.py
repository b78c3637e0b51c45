"""Count stilted expressions in README.md, docs and src: none on users' pages, at most CEILING elsewhere.

Run from anywhere: ``python docs/voice.py`` (`make lint` does). Exits with 1 and one line per hit if there are too many.
Each line is read by itself; case is ignored except in patterns that begin with ``(?-i:``. The comment after a pattern
says what to write instead. Some hits are false positives. Lower the ceiling when there are fewer; do not raise it.
"""

import re
import sys
from collections.abc import Iterator
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


def files() -> Iterator[Path]:
    """What is searched: README.md, the pages without stored results, and the sources."""
    yield ROOT / "README.md"
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "results" not in page.parts:
            yield page
    yield from sorted((ROOT / "src").rglob("*.py"))


def hits() -> list[Hit]:
    """All hits."""
    names = ((path, path.relative_to(ROOT).as_posix()) for path in files())
    return [hit for path, name in names for hit in hits_in(name, path.read_text(encoding="utf-8"))]


def main() -> int:
    """Print the hits if there are too many; return 1 then."""
    found = hits()
    users = [hit for hit in found if hit.path.startswith(USERS)]
    too_many = found if len(found) > CEILING else users
    for hit in too_many:
        print(f"{hit.path}:{hit.line}: {hit.text}")
    print(f"{len(found)} stilted expressions (at most {CEILING}), {len(users)} of them on users' pages (none allowed)")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
