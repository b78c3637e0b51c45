"""Comparisons as one HTML page that needs nothing else."""

from quantprop.report.choice import ChoiceStudy, choice_lines, choice_records, concluded
from quantprop.report.names import called, conclusion
from quantprop.report.page import page, write
from quantprop.report.study import Study, lines, records, summary

__all__ = ["ChoiceStudy", "Study", "called", "choice_lines", "choice_records", "concluded", "conclusion", "lines",
           "page", "records", "summary", "write"]  # fmt: skip
