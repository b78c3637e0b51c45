"""Learned models as files: safe to read, written whole or not at all."""

from quantprop.storage.fitted import load, save

__all__ = ["load", "save"]
