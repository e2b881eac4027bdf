"""`python -m tests.record_debezium`: what Debezium's own engine makes of a log, for the golden test
of change events (tests/golden/debezium): `mysql-bin.000001` is the log of a MySQL that ran
`statements.sql`, `messages.jsonl` has the messages. A minute; a JDK 17 has to be in PATH, and
Debezium is fetched as for the benchmark.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

from benchmarks.e2e.systems import PEERS, debezium_libraries, java
from tests.servers import Server, start

FOLDER = Path(__file__).parent / "golden" / "debezium"
LAST = "the last one"
_LOG = "mysql-bin.000001"
_SETTINGS = (
    "topic.prefix=p", "database.include.list=d,my db", "tombstones.on.delete=true",
    "converter.schemas.enable=true", "include.schema.changes=false",
)  # fmt: skip
_OPTIONS = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}  # else it asks by GTIDs


def messages(lines: IO[str]) -> list[dict[str, Any]]:
    """Return a record for each message, after one with its topic's schemas; without what takes the
    schemas' room, as each message has its own."""
    found, known = list[dict[str, Any]](), set()
    for line in lines:
        topic, key, value = line.rstrip("\n").split("\t", 2)
        if LAST in value:
            return found
        key, value = json.loads(key), json.loads(value)
        if topic not in known:
            known.add(topic)
            schemas = {"key_schema": key and key["schema"], "schema": value["schema"]}
            found.append({"topic": topic, **schemas})
        payloads = {"key": key and key["payload"], "message": value and value["payload"]}
        found.append({"topic": topic, **payloads})
    raise RuntimeError(f"Debezium ended after {len(found)} lines")


def record(server: Server, folder: Path) -> None:
    """Run the statements, and write what Debezium says of them."""
    statements = (FOLDER / "statements.sql").read_text(encoding="utf-8").splitlines()
    server.execute(*(each.rstrip(";") for each in statements))
    shutil.copy(server.datadir / _LOG, FOLDER / _LOG)
    server.execute("CREATE TABLE d.last (v VARCHAR(20))", f"INSERT INTO d.last VALUES ('{LAST}')")
    libraries = debezium_libraries()
    command = [java(), "-cp", f"{libraries}/*", str(PEERS / "Embedded.java")]
    with subprocess.Popen(
        [*command, str(server.port), "print", str(folder), *_SETTINGS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            assert process.stdout is not None
            lines = [json.dumps(each, ensure_ascii=False) for each in messages(process.stdout)]
        finally:
            process.kill()
    (FOLDER / "messages.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"{len(lines)} lines in {FOLDER / 'messages.jsonl'}")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as name,
        start("mysql97", Path(name) / "server", _OPTIONS) as server,
    ):
        record(server, Path(name))
        server.kill()
