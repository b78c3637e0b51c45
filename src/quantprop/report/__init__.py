"""Comparisons as one HTML page that needs nothing else."""

from quantprop.report.page import page, write
from quantprop.report.study import Study, lines, records, summary

__all__ = ["Study", "lines", "page", "records", "summary", "write"]
