"""`python -m quantprop.cli` is `quantprop`."""

from quantprop.cli.commands import app

if __name__ == "__main__":
    app(prog_name="quantprop")
