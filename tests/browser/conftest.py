"""One browser for all tests here.

Needs Playwright and Debian's Chromium (MATCHLIGHT_CHROMIUM names another). Without them the tests are skipped with a
reason; MATCHLIGHT_BROWSER=required makes that a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


def missing(reason: str) -> None:
    if os.environ.get("MATCHLIGHT_BROWSER") == "required":
        pytest.fail(f"the browser tests are required here, and {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed (pip install 'matchlight[dev]')")
    named = os.environ.get("MATCHLIGHT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not named:
        missing("no Chromium is found (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=named, args=FLAGS)
        yield browser
        browser.close()
