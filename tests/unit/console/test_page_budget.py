"""Every page of a console over 200 destinations: its size, and the CPU that it takes."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import load
from tests.processes import wait_for
from tests.unit.console.played import SNAPSHOT, SUBSCRIBER, Played
from tests.unit.console.test_app import Site

PAGE_BYTES_MAX = 100_000
PAGE_S_MAX = 0.2
ASKED_MAX = 40
PAGES = (
    "/",
    "/destinations/d100",
    "/destinations/d100?first=20",
    "/destinations/d100/tail",
    "/destinations/d100/schemas",
    "/destinations/d100/schemas?table=shop.t",
    "/destinations/d100/quarantine",
    "/start",
    "/destinations/none",
    "/static/console.css",
    "/static/console.js",
)


class Many(Played):
    """200 destinations; one of them has much to show."""

    def __init__(self, folder: Path) -> None:
        super().__init__(200)
        self._folder = folder
        full = self.statuses["d100"]
        full["snapshots"] = [{**SNAPSHOT, "client_id": i} for i in range(40)]
        full["tables"] = [{**full["tables"][0], "table": f"shop.t{i}"} for i in range(2000)]
        full["largest_transactions"] *= 10
        for i in range(0, 200, 4):
            self.statuses[f"d{i:03d}"] |= {"connected": False, "source_error": "refused " * 30}

    def subscribers(self, destination: str) -> list[dict[str, Any]]:
        return [{**copy.deepcopy(SUBSCRIBER), "client_id": i} for i in range(40)]

    def schema_history(self, destination: str, table: str) -> dict[str, Any]:
        found = super().schema_history(destination, table)
        return {
            "tables": [f"shop.table_{i}" for i in range(800)],
            "changes": found["changes"] * 100,
        }

    def deployment(self, destination: str) -> Any:
        source = {"address": "127.0.0.1:3306"}
        instance = [{"destination": destination, "source": source}]
        return load({"meta": {"path": str(self._folder / "meta.db")}, "instance": instance})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(Many(tmp_path_factory.mktemp("many")), refresh_s=60.0)

    def ready() -> bool:
        found = site.json("/api/v1/destinations")
        return len(found) == 200 and all(each["status"] for each in found)

    wait_for(ready, 60, "200 destinations")
    yield site
    site.console.stop()


def test_more_subscribers_are_on_the_next_page(site: Site) -> None:
    first, second = (site.ask(f"/destinations/d100{more}")[1] for more in ("", "?first=20"))
    assert '<th scope="row">19' in first
    assert '<th scope="row">20' not in first
    assert "?first=20" in first
    assert '<th scope="row">20' in second
    assert '<th scope="row">39' in second
    assert "Subscribers from the first on" in site.ask("/destinations/d100?first=99")[1]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.timed
def test_a_page_is_small_and_fast(site: Site, page: str) -> None:
    """CPU of the process, the asking included; also this grows where others use the same core, so
    that a page is asked for until it once was fast."""
    took_s: list[float] = []
    while len(took_s) < 4 or (min(took_s) >= PAGE_S_MAX and len(took_s) < ASKED_MAX):
        began = time.process_time()
        status, body, _ = site.ask(page)
        took_s.append(time.process_time() - began)
    print(f"{page}: {len(body.encode())} bytes, {1e3 * min(took_s):.1f} ms")
    assert status == (404 if page.endswith("/none") else 200)
    assert len(body.encode()) < PAGE_BYTES_MAX
    assert min(took_s) < PAGE_S_MAX
