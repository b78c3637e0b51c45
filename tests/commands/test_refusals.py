"""What cannot be done: errors say what to change, and interrupts leave old files."""

import pytest
from commands.calls import call

from quantprop import tables


@pytest.mark.parametrize(
    ("words", "stdin", "code", "message"),
    [
        (["fit", "nowhere.csv", "--target", "y"], None, 1, "No such file or directory: nowhere.csv"),
        (["fit", "-", "--target", "z"], b"x,y\n1,2\n", 2, "no column 'z'; it has 'x', 'y'"),
        (["fit", "-", "--target", "y"], b"x,y\n1,2\n3\n", 1, "line 3: 1 cells, but the header has 2"),
        (["fit", "-", "--target", "y"], b"x,y\n1,a\nNA,b\n", 1, "(by column: 'x' 1)"),
        (
            ["fit", "-", "--target", "y", "--drop-missing"],
            b"x,y\n1,\n2,\nNA,b\n",
            1,
            "in column 'y', which the model needs",
        ),
        (["fit", "-", "--target", "y", "--ignore", "q"], b"x,y\n1,2\n", 2, "no column 'q'"),
        (["fit", "-", "--target", "y", "--ignore", "y"], b"x,y\n1,2\n", 2, "cannot ignore y: it is the target"),
        (["fit", "-", "--target", "y", "--likelihood", "cauchy"], b"x,y\n1,2\n2,3\n", 2, "must be one of probit"),
        (["fit", "-", "--target", "y", "--kernel", "rbf"], b"x,y\n1,2\n2,3\n", 2, "must be one of isotropic"),
        (["fit", "-", "--target", "y", "--kernel", "grow"], b"x,y\n1,2\n2,3\n", 2, "replaced by --kernel auto"),
        (["fit", "-", "--target", "y", "--method", "mcmc"], b"x,y\n1,2\n2,3\n", 2, "got 'mcmc'"),
        (["fit", "-", "--target", "y", "--objective", "mse"], b"x,y\n1,2\n2,3\n", 2, "must be one of evidence, loo"),
        (["fit", "-", "--target", "y", "--monotone", "x"], b"x,y\n1,2\n2,3\n", 2, "must be column=shape"),
        (["fit", "-", "--target", "y", "--varying", "scale"], b"x,y\n1,2\n2,3\n", 2, "must be name=terms"),
        (["fit", "-", "--target", "y", "--monotone", "q=convex"], b"x,y\n1,2\n2,3\n", 1, "monotone"),
        (["fit", "-", "--target", "y", "--monotone", "x=up"], b"x,y\n1,2\n2,3\n", 1, "one of increasing"),
        (["fit", "-", "--target", "y", "--monotone", "x=convex", "--kernel", "auto"], b"x,y\n1,2\n", 2, "--monotone"),
        (["fit", "-", "--target", "y", "--dates", "iso"], b"x,y\n1,2\n2,3\n", 2, "must be one of number, parts"),
        (["fit", "-", "--target", "y", "--decimal", "x"], b"x,y\n1,2\n2,3\n", 2, "must be one of ., ,"),
        (["fit", "-", "--target", "y", "--weights", "w"], b"x,y\n1,2\n2,3\n", 2, "no column 'w'"),
        (["fit", "-", "--target", "y", "--exposure", "y"], b"x,y\n1,2\n2,3\n", 2, "column 'y' has two roles"),
        (
            ["fit", "-", "--target", "y", "--trials", "n"],
            b"x,n,y\n1,2,1\n2,3,4\n",
            1,
            "line 3: 4 in column 'y' must be",
        ),
        (["fit", "-", "--target", "y", "--likelihood", "binomial"], b"x,y\n1,2\n2,3\n", 2, "--trials names its column"),
        (["fit", "-", "--target", "y", "--likelihood", "poisson", "--log"], b"x,y\n1,2\n2,3\n", 2, "log is for"),
        (["fit", "-", "--target", "y", "--event", "e=9"], b"x,e,y\n1,1,2\n2,0,3\n", 2, "no row has '9'"),
        (["fit", "-", "--target", "y", "--drop-missing"], b"x,z,y\n1,,2\n2,,3\n3,,4\n,a,5\n,b,6\n", 1, "--ignore 'z'"),
        (["fit", "-", "--target", "y", "--out", "no/such/folder"], b"x,y\n1,2\n", 2, "--out"),
        (["fit", "-"], b"x,y\n1,2\n", 2, "--target"),
        (["predict", "MODEL", "-"], b"farbe\nrot\n", 1, "lacks the columns 'größe, cm', 'Flag'"),
        (["predict", "MODEL", "-", "--exposure", "2"], b"x\n1\n", 2, "the model was fitted without exposure"),
        (["predict", "MODEL", "DATA", "--key", "who"], None, 2, "no column 'who'"),
        (["predict", "MODEL", "DATA", "--drop-missing", "--blank-missing"], None, 2, "pass one of"),
        (["predict", "MODEL", "-", "--quantiles", "5"], b"x\n1\n", 2, "between 0 and 1"),
        (["predict", "DATA", "DATA"], None, 1, "is not a quantprop model"),
        (["explain", "DATA"], None, 1, "is not a quantprop model"),
        (["compare", "DATA", "--target", "urteil", "--methods", "qp,hmc"], None, 2, "got qp,hmc"),
        (["compare", "DATA", "--target", "urteil", "--folds", "90"], None, 2, "between 2 and the number of rows, 28"),
        (
            ["compare", "DATA", "--target", "urteil", "--folds", "3", "--kernel", "ard", "--kernel", "se(x)"],
            None,
            2,
            "--folds",
        ),
        (["compare", "DATA", "--target", "urteil", "--folds", "3", "--origins", "2"], None, 2, "--folds"),
        (
            ["compare", "-", "--target", "y", "--folds", "2"],
            b"x,y\n1,a\n2,a\n3,b\n",
            1,
            "label b of column 'y' is in one row only",
        ),
    ],
)
def test_errors_say_what_to_change(words, stdin, code, message, fitted, data, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    result = call(*({"MODEL": fitted[0], "DATA": data}.get(word, word) for word in words), stdin=stdin)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("more", [[], ["--exposure", "n"], ["--kernel", "linear(x)"]])
def test_columns_that_a_model_needs_are_not_to_be_ignored(more):
    """A target or a role: --ignore would be refused."""
    rows = b"x,n,y\n1,2,\n2,2,3\n" if not more else b"x,n,y\n1,,4\n2,2,3\n"
    result = call("fit", "-", "--target", "n" if "linear(x)" in more else "y", *more, stdin=rows)
    assert result.exit_code == 1
    assert "or drop these rows with --drop-missing" in " ".join(result.stderr.split())
    assert "--ignore" not in result.stderr


def test_debug_shows_where(folder):
    result = call("fit", "-", "--target", "y", "--debug", stdin=b"x,y\n1,2\n1,2\n")
    assert isinstance(result.exception, tables.TableError)


def test_an_interrupt_leaves_the_old_file(data, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    out = folder / "kept.html"
    out.write_text("old")
    monkeypatch.setattr("os.replace", interrupted)
    monkeypatch.setattr("quantprop.comparison.compare", lambda *_: interrupted())
    result = call("compare", data, "--target", "urteil", "--out", out)
    assert (result.exit_code, out.read_text()) == (130, "old")
    assert "nothing was written" in result.stderr
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]


def test_demo_prints_and_writes_where_it_is_told(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr("quantprop.report.demo.main", lambda out, progress: told.append(out) or [])
    result = call("demo", "--out", tmp_path / "page.html")
    assert (result.exit_code, told) == (0, [tmp_path / "page.html"])
    assert f"wrote {tmp_path / 'page.html'}" in result.stdout
