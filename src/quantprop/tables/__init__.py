"""Tables with named columns: read, encoded, learned from, and predicted for."""

from quantprop.tables.encoding import Encoding
from quantprop.tables.hazards import periods, survival
from quantprop.tables.large import Chunks, Spool, spooled
from quantprop.tables.models import TableModel, load
from quantprop.tables.problems import Problem, fit, problem
from quantprop.tables.reading import Table, TableError, from_bytes, from_columns, missing, read
from quantprop.tables.roles import RoleError, Roles
from quantprop.tables.selection import Complete, complete
from quantprop.tables.series import Seasons, seasons

__all__ = ["Chunks", "Complete", "Encoding", "Problem", "RoleError", "Roles", "Seasons", "Spool", "Table", "TableError",
           "TableModel", "complete", "fit", "from_bytes", "from_columns", "load", "missing", "periods", "problem",
           "read", "seasons", "spooled", "survival"]  # fmt: skip
