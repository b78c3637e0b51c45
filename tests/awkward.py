"""A table with everything that tables have and should not: see `awkward`."""

import numpy as np

SCRIPT = "<script>alert(1)</script>"
COLOURS = ("rot", "blau; hell", "grün")


def awkward(rows=28, seed=3):
    """Semicolons, quotes, a BOM, blank lines, a constant column, truth values, words, names that mean harm."""
    rng = np.random.default_rng(seed)
    lines = [f'\ufeff"größe, cm";farbe;Flag;konst;{SCRIPT};$cost$;urteil']
    for i in range(rows):
        size, harm, cost = rng.normal(size=3)
        flag = bool(rng.random() < 0.5)
        colour = COLOURS[i % 3]
        verdict = "ja" if size + 0.4 * harm + 0.3 * rng.normal() > 0 else "nein, nie"
        cell = f'"{colour}"' if ";" in colour else colour
        lines += [f'{size:.4f};{cell};{flag};7;{harm:.3f};{100 + cost:.2f};"{verdict}"', *[""] * (i % 9 == 0)]
    return "\r\n".join(lines) + "\r\n \r\n"
