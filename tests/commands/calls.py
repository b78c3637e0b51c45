"""How tests call the command line, and tables that several of them fit."""

import csv
import io

import numpy as np
from typer.testing import CliRunner

from quantprop.cli import app


def call(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def numbers(more, n=20):
    x = np.linspace(0, 3, n)
    return "when,calls\n" + "".join(f"{t!r},{round(3 + 2 * np.sin(2 * t)) + more}\n" for t in x.tolist())


DAYS = np.arange(36.0)
LEVEL = 0.05 * DAYS + np.sin(2.0 * np.pi * DAYS / 7.0) + 0.3 * np.random.default_rng(0).normal(size=len(DAYS))
SERIES = "day,level,other\n" + "".join(f"{day},{y},{day % 5}\n" for day, y in zip(DAYS, LEVEL, strict=True))
