"""Types and shapes of the package's functions, checked as they are called: jaxtyping's annotations by beartype.

`make test-all` runs all tests so (QUANTPROP_CHECKED=1, which tests/conftest.py looks at); the default tests run the
representatives of tests/test_shapes.py.
"""

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float, as type checkers have it


def install() -> None:
    """Check every function of the package that is imported from here on."""
    install_import_hook("quantprop", "checked.check")
