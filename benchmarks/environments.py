"""A virtual environment for each peer, made once under benchmarks/.envs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENTS = Path(__file__).parent / ".envs"
PATIENCE = 600  # seconds for one installation: where there is no wheel, some packages compile for an hour


@dataclass(frozen=True)
class Environment:
    """The interpreter with a peer installed and its packages' versions, or why it could not be installed."""

    python: Path | None
    versions: dict[str, str]
    failure: str = ""


def environment(name: str, choices: tuple[tuple[str, ...], ...]) -> Environment:
    """The environment of a peer, made if need be with the first choice of requirements that installs."""
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "requirements.json"
    if stamp.exists():
        return Environment(python, _versions(python))
    ENVIRONMENTS.mkdir(exist_ok=True)
    failure = ""
    for requirements in choices:
        print(f"installing {' '.join(requirements)} into {folder}", flush=True)
        failure = _install(folder, python, requirements)
        if not failure:
            stamp.write_text(json.dumps(requirements))
            return Environment(python, _versions(python))
        print(f"  {failure}", flush=True)
    return Environment(None, {}, f"not installable: {failure}")


def _install(folder: Path, python: Path, requirements: tuple[str, ...]) -> str:
    """Make the environment anew; empty if all went well, else the error in one line."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *requirements]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"pip was stopped after {PATIENCE} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["pip failed"]
    telling = [each for each in lines if "Exception:" in each] or [each for each in lines if each.startswith("ERROR:")]
    return (telling or lines)[-1][:200]


def _versions(python: Path) -> dict[str, str]:
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--disable-pip-version-check", "--format=json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {entry["name"].lower(): entry["version"] for entry in json.loads(listed.stdout)}
