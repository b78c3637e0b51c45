"""What is published: a wheel and an sdist that hold what they should, and work in empty environments.

    python tests/distribution.py dist        # by make dist

Each is installed on its own, where its version, demo and `smoke.py` are run. PYTHONS names further interpreters for the
wheel, say PYTHONS="python3.12 python3.13".
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
MAX_WHEEL = 1.5e6  # bytes
STORED = TESTS / "storage" / "data" / "0.1" / "classifier.safetensors"


def check_wheel(path: Path) -> None:
    """Only the package and its metadata, with the licence, in less than MAX_WHEEL."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    strange = [name for name in names if not name.startswith(("quantprop/", "quantprop-"))]
    assert not strange, strange
    assert not [name for name in names if "/tests/" in name or "/studies/" in name]
    assert "quantprop/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert path.stat().st_size < MAX_WHEEL, f"{path.name} has {path.stat().st_size:,} bytes"


def check_sdist(path: Path) -> None:
    """What building and testing need."""
    with tarfile.open(path) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "Makefile", "pyproject.toml", "tests/conftest.py"}
    assert needed <= inside, needed - inside


def try_installed(path: Path, python: str) -> None:
    """Installed alone in an empty environment: its demo and the smoke tests, away from the source."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run([python, "-m", "venv", home / "env"], check=True)
        inside = home / "env" / "bin"
        versions = TESTS.parent / "constraints.txt"
        package = f"quantprop[plots] @ {path.as_uri()}"
        subprocess.run([inside / "pip", "install", "-q", "-c", versions, package], check=True)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        for command in ([inside / "quantprop", "version"], [inside / "quantprop", "demo"],
                        [inside / "python", TESTS / "smoke.py", STORED]):  # fmt: skip
            subprocess.run(command, check=True, cwd=home, env=environment)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    for path, python in [(wheel, sys.executable), (sdist, sys.executable),
                         *[(wheel, python) for python in os.environ.get("PYTHONS", "").split()]]:  # fmt: skip
        print(f"--- {path.name}, {python}", flush=True)
        try_installed(path, python)
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes; both work")


if __name__ == "__main__":
    main()
