"""Fixture: one Chromium of the machine (Debian's chromium and chromium-driver), headless.

Where there is none, tests that need it are skipped and say so.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.fetch import cache_dir

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip
_AXE = "axe-core@4.10.3"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A selenium driver."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(driver))
    made.set_page_load_timeout(60)
    yield made
    made.quit()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what keeps people with impairments from a page."""
    kept = cache_dir() / "axe.min.js"
    if not kept.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm here, so axe-core cannot be fetched: apt-get install npm")
        folder = cache_dir() / "axe"
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "pack", _AXE], cwd=folder, capture_output=True, text=True, check=False
        )
        packed = sorted(folder.glob("axe-core-*.tgz"))
        if done.returncode or not packed:
            pytest.skip(f"axe-core cannot be fetched: {done.stderr.strip()[-200:]}")
        with tarfile.open(packed[-1]) as tar:
            member = tar.extractfile("package/axe.min.js")
            assert member is not None
            text = member.read()
        part = kept.with_suffix(".part")
        part.write_bytes(text)
        part.replace(kept)
    return kept.read_text(encoding="utf-8")
