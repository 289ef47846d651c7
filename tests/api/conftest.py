from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from server import Server
from service import Service

# The browser talks to nobody but the page: without these it looks for updates and safe-browsing lists.
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A real headless Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        reason = "no Chromium found; install it with: sudo sh tests/system_packages.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'paretune.db'}"


@pytest.fixture
def service(url: str) -> Iterator[Service]:
    made = Service(url)
    yield made
    made.repository.close()


@pytest.fixture
def server(url: str, service: Service) -> Iterator[Server]:
    with Server(url) as running:
        yield running


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A tab that fails its test on any error or warning in the console, a violated policy among them."""
    opened = chromium.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    opened.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    opened.close()
    assert [c for c in complaints if not c.startswith("Failed to load resource")] == []
