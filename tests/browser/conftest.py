"""What the tests of this folder share: a headless Chromium, pages that are watched, and the documentation, built."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install 'quantprop[browser]'")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no Chromium: apt-get install chromium"
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def watched(browser):
    """Opens an empty page of a width and colour scheme; gives it with the list of what it asks for or complains of."""

    @contextmanager
    def opened(width: int = 1280, scheme: str = "light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page, events = context.new_page(), []
        page.on("console", lambda message: events.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: events.append(f"error: {error}"))
        page.on("request", lambda asked: events.append(f"request: {asked.url}"))

        def told(dialog):  # which would stay open, and the page wait for an answer
            events.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("dialog", told)
        yield page, events
        context.close()

    return opened


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the documentation, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder
