"""Speed of quantprop: `make bench`. Ratios inside the library, first fits, peers, growth with the rows.

Tables go to the terminal, JSON to benchmarks/out. Peers are installed into benchmarks/.envs, each into an
environment of its own; one that cannot be installed is named in the table and left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cold import measure_cold
from compare import PROGRAMS, Choice, compare
from inside import measure_inside
from known import measure_known
from quantiles import measure_quantiles
from rule import measure_rule
from scaling import SIZES, measure_scaling
from splits import SETS
from varying import measure_varying
from waits import measure_waits
from warm import measure_warm

OUT = Path(__file__).parent / "out"
MEASURES = {
    "inside": measure_inside,
    "rule": measure_rule,
    "quantiles": measure_quantiles,
    "warm": measure_warm,
    "cold": measure_cold,
    "varying": measure_varying,
    "waits": measure_waits,
    "known": measure_known,
}
PARTS = (*MEASURES, "peers", "scaling")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs = [program.name for program in PROGRAMS]
    parser.add_argument("--only", choices=PARTS, action="append", help="this part only; may be repeated")
    parser.add_argument("--programs", type=_some(programs), default=(), help=f"of the peers: {','.join(programs)}")
    parser.add_argument("--sets", type=_some(SETS), default=(), help=f"for every program chosen: {','.join(SETS)}")
    parser.add_argument(
        "--methods", type=lambda text: tuple(text.split(",")), default=(), help="these only, say ep,laplace"
    )
    parser.add_argument("--add", action="store_true", help="keep the rows of peers.json that are not measured again")
    parser.add_argument("--here", action="store_true", help="peers of this environment: nothing is installed")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that one process of a peer may take")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest number of rows in the scaling curves")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    OUT.mkdir(exist_ok=True)
    parts = asked.only or PARTS
    for name, measure in MEASURES.items():
        if name in parts:
            measure(OUT)
    if "peers" in parts:
        compare(OUT, Choice(asked.programs, asked.sets, asked.methods, asked.add, asked.here, asked.limit))
    if "scaling" in parts:
        measure_scaling(OUT, asked.most)


def _some(known):
    """A reader of comma-separated names among the known ones."""

    def names(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return chosen

    return names


if __name__ == "__main__":
    main()
