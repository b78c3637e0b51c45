"""`python -m quantprop.cli` is `quantprop`."""

from quantprop.cli import main

if __name__ == "__main__":
    main()
