"""Comparisons as one HTML page that needs nothing else."""

from quantprop.report.choice import ChoiceStudy, choice_lines, choice_records, concluded
from quantprop.report.names import called, conclusion, likelihood_called
from quantprop.report.page import page, write
from quantprop.report.reading import Reading
from quantprop.report.study import Study, lines, records, summary

__all__ = ["ChoiceStudy", "Reading", "Study", "called", "choice_lines", "choice_records", "concluded", "conclusion",
           "likelihood_called", "lines", "page", "records", "summary", "write"]  # fmt: skip
