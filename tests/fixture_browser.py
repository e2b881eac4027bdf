"""Fixtures: one headless Chromium, and axe-core.

Where they are not here and cannot be fetched, tests that need them are skipped and say so.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.browser import chromium
from tests.servers.fetch import FetchError, fetch_axe

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    """A selenium driver of a new browser. Raises FetchError."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    found = chromium()
    with tempfile.TemporaryDirectory(prefix="chromium") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = found.program
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = Service(found.driver, env=found.environment or None)
        made = webdriver.Chrome(options=options, service=service)
        made.set_page_load_timeout(60)
        try:
            yield made
        finally:
            made.quit()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A selenium driver. It ends with the module: a page that is left open goes on asking."""
    try:
        chromium()
    except FetchError as error:
        pytest.skip(f"no Chromium: {error}; or apt-get install chromium chromium-driver")
    with open_browser() as made:
        yield made


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what keeps people with impairments from a page."""
    try:
        return fetch_axe().read_text(encoding="utf-8")
    except FetchError as error:
        pytest.skip(f"no axe-core: {error}")
