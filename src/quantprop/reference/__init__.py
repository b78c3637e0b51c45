"""Ground truth to judge the approximations by: the exact posterior and evidence of a model, up to Monte-Carlo error.

Slow and without approximation, so nothing in the library imports it.
"""

from quantprop.reference.annealing import Evidence, log_evidence
from quantprop.reference.chains import ChainsDisagree, Draws, Estimate, sample

__all__ = ["ChainsDisagree", "Draws", "Estimate", "Evidence", "log_evidence", "sample"]
