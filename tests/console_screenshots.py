"""`python -m tests.console_screenshots`: pictures of the console's pages for the documents.

The destinations are played, and rows are those of the bundled binlog files, so that the pictures
show the same each time. What they were made of is noted beside them; a unit test tells when pages
have changed since.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import ray_canal as canal
from ray_canal.config import ConsoleConfig
from ray_canal.console import app as console_app
from ray_canal.console import pages
from ray_canal.console.app import Console
from ray_canal.console.cluster import Cluster
from ray_canal.console.collector import SAMPLE_S, SAMPLES_MAX, Collector, KnownDestination, Sample
from ray_canal.console.first_source import SourceFiles
from ray_canal.demo import binlog_files
from tests.fixture_browser import open_browser
from tests.unit.console.played import SINK, SNAPSHOT, STATUS, SUBSCRIBER, Played

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "how-to" / "console"
NOTED = FOLDER / "made-of.txt"
NOW = 1795490063.0
_SIZE = {"width": 1120, "height": 760, "deviceScaleFactor": 1, "mobile": False}

BUSY = {"fetch": 31.0, "parse": 12.0, "decode": 88.0, "buffer": 4.0, "store": 9.0, "get": 22.0}
TABLES = {"order_lines": 41_200.0, "orders": 15_100.0, "customers": 4900.0, "stock": 200.0}
HELD = [
    {"place": f"mysql-bin.000412:{place}", "tables": ["shop.imported"], "bytes": 77_120,
     "why": "columns not known"}
    for place in (8_117_204, 8_204_990, 8_371_455)
] + [
    {"place": "mysql-bin.000412:9003120", "tables": ["the message of client 1001"],
     "bytes": 4_812, "why": "given up by client 1001"},
]
CHECKS = [
    {"name": "connection", "ok": True, "advisory": False, "detail": "db1.example:3306 runs 9.7.4",
     "fix": ""},
    {"name": "binlog_format", "ok": True, "advisory": False, "detail": "ROW", "fix": ""},
    {"name": "grants", "ok": False, "advisory": False,
     "detail": "the user may not read the binlog",
     "fix": "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';"},
    {"name": "binlog_expire_logs_seconds", "ok": False, "advisory": True,
     "detail": "3600: after an hour nothing can be read any more",
     "fix": "SET PERSIST binlog_expire_logs_seconds = 259200;"},
]  # fmt: skip


def made_of() -> str:
    """Return what changes when a page may look otherwise."""
    folder = Path(pages.__file__).parent
    files = sorted([*(folder / "templates").iterdir(), *(folder / "static").iterdir()])
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


class Shown(Played):
    """Seven destinations, two of them with problems."""

    def __init__(self) -> None:
        super().__init__(0)
        rates = {"audit": 40, "billing": 3100, "catalog": 0, "crm": 950, "orders": 61_400,
                 "payments": 12_300, "stock": 7800}  # fmt: skip
        for number, (name, rate) in enumerate(rates.items()):
            status = {
                **STATUS,
                "destination": name,
                "source": f"db{number + 1}.example:3306",
                "rows_per_second": float(rate),
                "lag_seconds": 0.4 + number / 7,
                "lag_bytes": 900 * number,
                "rows": rate * 86_400.0,
                "purge": {"seconds": 2.6 * 86_400 + 9000 * number, "warning": ""},
            }
            status["store"] = {**STATUS["store"], "fill": 0.05 * (number + 1)}
            self.statuses[name] = status
        self.statuses["crm"] |= {
            "connected": False, "lag_seconds": 47.0, "lag_bytes": None,
            "source_error": "MySQL at db4.example:3306 as user 'cdc': connection refused",
        }  # fmt: skip
        self.statuses["stock"] |= {"lag_seconds": 94.0, "lag_bytes": 212_000_000}
        orders = self.statuses["orders"]
        orders["stages"] = {
            name: {"busy_s": busy, "waiting_s": 100 - busy, "busy_percent": busy}
            for name, busy in BUSY.items()
        }
        orders["decoders"] = 1
        orders["snapshots"] = [{**SNAPSHOT, "client_id": 1002}]
        orders["tables"] = [
            {"table": f"shop.{name}", "rows_per_second": rate, "bytes_per_second": rate * 92,
             "rows": int(rate * 86_400), "bytes": int(rate * 86_400 * 92)}
            for name, rate in TABLES.items()
        ]  # fmt: skip
        orders["largest_transactions"] = [
            {"position": f"mysql-bin.{412 - i:06}:{9_300_117 * (i + 1) % 99_999_989}",
             "rows": 1_200_000 // (i + 1) ** 2, "bytes": 96_000_000 // (i + 1) ** 2,
             "time": NOW - 700 * (i + 1)}
            for i in range(4)
        ]  # fmt: skip

    def subscribers(self, destination: str) -> list[dict[str, Any]]:
        return [
            {**SUBSCRIBER, "client_id": 1001, "label": "warehouse", "entries_behind": 812,
             "bytes_behind": 73_900, "unacked_batches": 1},
            {**SUBSCRIBER, "client_id": 1002, "label": "search", "policy": "spill",
             "paused_at": NOW - 600, "entries_behind": 90_412, "bytes_behind": 8_227_492,
             "last_call_s": 600.0},
        ]  # fmt: skip

    def schema_history(self, destination: str, table: str) -> dict[str, Any]:
        first = [("id", "bigint"), ("customer", "int"), ("total", "decimal(10,2)")]
        note = [*first, ("note", "varchar(200)")]
        last = [("id", "bigint"), ("total", "decimal(12,2)"), ("note", "varchar(200)")]
        changes = [
            ("snapshot", "", first),
            ("ddl", "ALTER TABLE orders ADD note VARCHAR(200)", note),
            ("ddl", "ALTER TABLE orders MODIFY total DECIMAL(12,2), DROP customer", last),
        ]
        return {
            "tables": ["shop.customers", "shop.order_lines", "shop.orders", "shop.stock"],
            "changes": [
                {"journal_name": f"mysql-bin.{400 + i:06}", "position": 4_119 + 77_000 * i,
                 "recorded_at": NOW - 86_400 * (3 - i), "kind": kind, "sql": sql,
                 "columns": columns, "problem": ""}
                for i, (kind, sql, columns) in enumerate(changes)
            ],
        }  # fmt: skip

    def sinks(self) -> dict[str, dict[str, Any]]:
        return {"lake": {**SINK, "destination": "orders"}}

    def deployment(self, destination: str) -> Any: ...

    def look_on(self, destination: str) -> Any:
        return Replayed()


class Replayed:
    """A connector whose messages are the bundled files' changes, a few at a time."""

    def __init__(self) -> None:
        every = canal.decode_files(binlog_files())
        self._batches = iter([each for each in every if _table(each) in ("orders", "stock")])

    def subscribe(self, *arguments: Any, **named: Any) -> None: ...

    def get_without_ack(self, batch_size: int, timeout: float | None) -> Any:
        return Part(list(itertools.islice(self._batches, 3)))

    def ack(self, batch_id: int) -> None: ...

    def close(self) -> None: ...


def _table(batch: Any) -> str:
    return str(batch.schema.metadata[b"canal.table"].decode())


class Part:
    """A message."""

    id = 1

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches
        self.finished = not batches

    def __bool__(self) -> bool:
        return bool(self._batches)

    def batches_by_part(self) -> Iterator[list[Any]]:
        yield self._batches


class WithAnHour(Collector):
    """Its destinations were known for an hour."""

    def all(self) -> list[KnownDestination]:
        return [self._with_samples(each) for each in super().all()]

    def one(self, destination: str) -> KnownDestination:
        return self._with_samples(super().one(destination))

    def _with_samples(self, known: KnownDestination) -> KnownDestination:
        seed = sum(known.name.encode())
        waves = [1 + 0.6 * math.sin((i + seed) / 9) for i in range(SAMPLES_MAX)]
        rate, lag = known.status.get("rows_per_second", 0.0), known.status.get("lag_seconds", 0.0)
        samples = tuple(
            Sample(at=NOW + i * SAMPLE_S, lag_seconds=lag * wave, lag_bytes=1e4 * wave,
                   rows_per_s=rate * wave, fill=0.1 * wave)
            for i, wave in enumerate(waves)
        )  # fmt: skip
        return KnownDestination(name=known.name, status=known.status, subscribers=known.subscribers,
                     answered_at=NOW, samples=samples)  # fmt: skip


def shoot(folder: Path, size: dict[str, Any], *, suffix: str = "") -> None:
    """Take the pictures. Raises FetchError: there is no Chromium."""
    console_app.Collector = WithAnHour  # type: ignore[attr-defined,misc]
    pages.check_first = lambda first: CHECKS  # type: ignore[attr-defined]
    pages.shown_chunks = lambda config, destination: HELD  # type: ignore[attr-defined]
    user = [{"username": "ada", "password": "ada", "rights": ["admin"]}]
    config = ConsoleConfig.model_validate({"port": 0, "host": "127.0.0.1", "user": user})
    files = SourceFiles("/etc/ray_canal/canal.toml")
    console = Console(config, cast(Cluster, Shown()), files)
    url = console.start()
    with open_browser() as browser:
        for mode in ("light", "dark"):
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            features = [{"name": "prefers-color-scheme", "value": mode}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            for name in _pages(browser, url):
                threading.Event().wait(0.5)
                browser.save_screenshot(str(folder / f"{name}{suffix}-{mode}.png"))
    console.stop()


def _pages(browser: Any, url: str) -> Iterator[str]:
    """Go to each page, and yield its name when it is there."""
    browser.delete_all_cookies()
    browser.get(url + "/login")
    yield "login"
    _fill(browser, username="ada", password="ada")
    browser.find_element("css selector", "button.main").click()
    _until(browser, "stock")
    yield "overview"
    browser.get(url + "/destinations/orders")
    _until(browser, "Largest transactions")
    yield "destination"
    browser.get(url + "/destinations/orders/schemas?table=shop.orders")
    yield "schemas"
    browser.get(url + "/destinations/orders/quarantine")
    yield "quarantine"
    browser.get(url + "/destinations/orders/tail")
    browser.find_element("css selector", "#tail button[type=submit]").click()
    _until(browser, "UPDATE")
    yield "tail"
    browser.get(url + "/start")
    _fill(browser, destination="orders", address="db1.example:3306", username="cdc", password="x")
    browser.find_element("css selector", "button[value=check]").click()
    _until(browser, "Not yet")
    yield "start"
    browser.get(url + "/destinations/ordres")
    yield "error"


def _fill(browser: Any, **values: str) -> None:
    for name, value in values.items():
        browser.find_element("css selector", f"input[name={name}]").send_keys(value)


def _until(browser: Any, text: str) -> None:
    deadline = time.monotonic() + 60
    script = "return document.body.innerText.includes(arguments[0])"
    while not browser.execute_script(script, text):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{text!r} is not on {browser.current_url}")
        time.sleep(0.1)


def main() -> None:
    """Take them, and note what they were made of."""
    FOLDER.mkdir(exist_ok=True)
    shoot(FOLDER, _SIZE)
    NOTED.write_text(made_of() + "\n", encoding="ascii")
    print(f"pictures are in {FOLDER}")


if __name__ == "__main__":
    sys.exit(main())
