"""Ground truth to judge the approximations by: the exact posterior and evidence of a model, up to Monte-Carlo error.

Slow and without approximation, so nothing in the library imports it.
"""

from quantprop.reference.chains import ChainsDisagree, Draws, Estimate, Evidence, log_evidence, sample

__all__ = ["ChainsDisagree", "Draws", "Estimate", "Evidence", "log_evidence", "sample"]
