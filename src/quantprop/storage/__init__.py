"""Learned models as files: safe to read, written atomically."""

from quantprop.storage import integrated, stacked  # noqa: F401  # so that these can be saved
from quantprop.storage.fitted import load, save
from quantprop.storage.records import register

__all__ = ["load", "register", "save"]
