"""The command that decodes files, in every format, in this process."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.cli import app
from ray_canal.cli.decode import OF_FORMATS, decode
from ray_canal.demo import binlog_files, expected
from ray_canal.errors import ConfigError
from tests.golden import GOLDEN, GTIDLOG, split_delimited


def decoded(*arguments: object) -> bytes:
    """What the command prints."""
    done = CliRunner().invoke(app, ["decode", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes


def test_decode_json_has_every_change() -> None:
    printed = decoded(*binlog_files(), "--format", "json")
    changes = [json.loads(line) for line in printed.splitlines()]
    assert len(changes) == expected()["changes"]
    places = [(c["journal_name"], c["position"], c["row"]) for c in changes]
    assert places == sorted(places)


def test_decode_entries_are_canal_messages(tmp_path: Path) -> None:
    out = tmp_path / "entries.pb"
    decoded(*binlog_files(), "--format", "entries", "--output", out)
    entries = [pb.Entry.FromString(m) for m in split_delimited(out.read_bytes())]
    kinds = [entry.entryType for entry in entries]
    assert kinds.count(pb.TRANSACTIONBEGIN) == kinds.count(pb.TRANSACTIONEND) > 0
    rows = 0
    for entry in entries:
        if entry.entryType == pb.ROWDATA:
            rows += len(pb.RowChange.FromString(entry.storeValue).rowDatas)
    assert rows == expected()["changes"]


def test_decode_prints_canals_queue_messages() -> None:
    rules = ("--partitions", "3", "--partition-hash", r".*\..*:$pk$", "--ts", "5")
    printed = decoded(*binlog_files(), "--format", "flat", "--batch-entries", "9", *rules)
    sent = [json.loads(line) for line in printed.splitlines()]
    assert {line["partition"] for line in sent} == {0, 1, 2}
    assert {line["message"]["ts"] for line in sent} == {5}
    assert sum(len(line["message"]["data"] or ()) for line in sent) == expected()["changes"]


def test_decode_writes_canals_own_bytes(tmp_path: Path) -> None:
    """The options of cases.tsv, by the command: --gtid, --time-zone, --schema."""
    folder, out = GOLDEN / "mysql97", tmp_path / "entries.pb"
    for name, options in (
        ("mysql_dml.gtid", ["--gtid", "--gtid-set", "00000000-0000-0000-0000-000000000001:1-5"]),
        ("mysql_temporal.tzBerlin", ["--time-zone", "Europe/Berlin"]),
        ("mysql_temporal.live", ["--schema", folder / "mysql_temporal.schema.sql"]),
    ):
        binlog = folder / f"{name.partition('.')[0]}.binlog"
        decoded(binlog, "--format", "entries", "--output", out, *options)
        canal = split_delimited((folder / f"{name}.pb").read_bytes())
        wanted = [m for m in canal if pb.Entry.FromString(m).entryType != GTIDLOG]
        assert split_delimited(out.read_bytes()) == wanted


def test_decode_arrow_writes_a_file_per_table_version(tmp_path: Path) -> None:
    decoded(*binlog_files(), "--format", "arrow", "--output", tmp_path)
    rows = 0
    for path in tmp_path.glob("*.arrow"):
        with pa.ipc.open_stream(path) as reader:
            rows += reader.read_all().num_rows
    assert rows == expected()["changes"]


def test_decode_prints_change_events_and_writes_them_in_avro(tmp_path: Path) -> None:
    options = ("--topic", "shop", "--ts", "5", "--decimals", "string")
    printed = decoded(*binlog_files(), "--format", "debezium", *options)
    lines = [json.loads(line) for line in printed.splitlines()]
    events = [line["message"] for line in lines if line["message"]]
    places = {(e["source"]["file"], e["source"]["pos"], e["source"]["row"]) for e in events}
    assert len(places) == expected()["changes"]
    assert {event["ts_ms"] for event in events} == {5}
    assert all(line["topic"].startswith("shop.shop.") for line in lines)
    for _ in range(2):  # files of an earlier run are written again
        decoded(*binlog_files(), "--format", "avro", *options, "-o", tmp_path)
    records: list[Any] = []
    for path in tmp_path.glob("*.avro"):
        with path.open("rb") as file:
            records += fastavro.reader(file)
    for name in ("before", "after", "source"):
        assert sorted(map(json.dumps, (event[name] for event in events))) == sorted(
            json.dumps(record[name]) for record in records
        )


def test_a_wrong_place_is_told_in_a_line() -> None:
    arguments = ["decode", str(binlog_files()[0]), "--skip-event", "x"]
    told = "^source: skip_events: 'x' is no place; expected \"mysql-bin"
    with pytest.raises(ConfigError, match=told) as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--schemas"], "--schemas changes nothing with --format json; it is of debezium"),
        (["--format", "arrow", "--topic", "t"], "--topic changes nothing with --format arrow"),
        (["--format", "entries", "--partitions", "2"], "it is of flat, flat-entries"),
        (["--format", "flat-entries", "--split-key-changes"], "it is of flat"),
        (["--format", "flat-entries", "--old", "exact"], "it is of flat"),
        (["--format", "flat-entries", "--ts", "5"], "it is of flat, debezium, avro"),
        (["--format", "debezium", "--no-database-hash"], "--database-hash changes nothing"),
        (["--format", "entries", "--gtid-set", "a:1"], "changes nothing without --gtid"),
    ],
)
def test_an_option_that_the_format_does_not_use_is_refused(options: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, ["decode", str(binlog_files()[0]), *options])
    assert isinstance(done.exception, ConfigError)
    assert reason in str(done.exception)


def test_every_option_is_of_all_formats_or_of_those_named() -> None:
    of_all = {"context", "files", "format", "output", "schema", "lower_case_table_names",
              "skip_event", "filter"}  # fmt: skip
    assert set(inspect.signature(decode).parameters) == of_all | set(OF_FORMATS)
