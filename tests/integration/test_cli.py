"""The command as a user types it: its output, its exit codes, what it says of bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.demo import binlog_files, expected
from tests.golden import GOLDEN, GTIDLOG, split_delimited

pytestmark = pytest.mark.ray


def command(*arguments: object, timeout_s: float = 180) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "ray_canal.cli", *(str(a) for a in arguments)],
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def test_help_lists_every_command() -> None:
    done = command("--help")
    assert done.returncode == 0
    for name in ("start", "stop", "status", "tail", "check", "decode", "verify", "import", "demo"):
        assert name in done.stdout.decode()
        assert command(name, "--help").returncode == 0


def test_import_writes_a_file_that_check_reads(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    server = tmp_path / "canal.properties"
    server.write_text("canal.destinations = orders\ncanal.serverMode = pulsarMQ\n")
    text = "canal.instance.master.address = 127.0.0.1:1\ncanal.instance.dbPassword = s3cret\n"
    (tmp_path / "orders" / "instance.properties").write_text(text)
    out = tmp_path / "canal.toml"
    refused = command("import", server, "--out", out)
    assert refused.returncode == 1
    assert b"canal.serverMode" in refused.stderr
    assert not out.exists()
    done = command("import", server, "--out", out, "--set", "canal.serverMode=tcp")
    assert done.returncode == 0, done.stderr.decode()
    assert b"CANAL_ORDERS_PASSWORD" in done.stderr
    assert "s3cret" not in out.read_text() + done.stderr.decode()
    assert b"exists" in command("import", server, "--out", out, "--accept-refused").stderr
    printed = command("import", server, "--accept-refused")
    assert printed.returncode == 0
    assert b'destination = "orders"' in printed.stdout


def test_decode_json_has_every_change() -> None:
    done = command("decode", *binlog_files(), "--format", "json")
    assert done.returncode == 0, done.stderr.decode()
    changes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(changes) == expected()["changes"]
    places = [(c["journal_name"], c["position"], c["row"]) for c in changes]
    assert places == sorted(places)


def test_decode_entries_are_canal_messages(tmp_path: Path) -> None:
    out = tmp_path / "entries.pb"
    done = command("decode", *binlog_files(), "--format", "entries", "--output", out)
    assert done.returncode == 0, done.stderr.decode()
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
    done = command("decode", *binlog_files(), "--format", "flat", "--batch-entries", "9", *rules)
    assert done.returncode == 0, done.stderr.decode()
    sent = [json.loads(line) for line in done.stdout.splitlines()]
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
        done = command("decode", binlog, "--format", "entries", "--output", out, *options)
        assert done.returncode == 0, done.stderr.decode()
        canal = split_delimited((folder / f"{name}.pb").read_bytes())
        wanted = [m for m in canal if pb.Entry.FromString(m).entryType != GTIDLOG]
        assert split_delimited(out.read_bytes()) == wanted


def test_decode_arrow_writes_a_file_per_table_version(tmp_path: Path) -> None:
    done = command("decode", *binlog_files(), "--format", "arrow", "--output", tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    rows = 0
    for path in tmp_path.glob("*.arrow"):
        with pa.ipc.open_stream(path) as reader:
            rows += reader.read_all().num_rows
    assert rows == expected()["changes"]


def test_decode_prints_change_events_and_writes_them_in_avro(tmp_path: Path) -> None:
    options = ("--topic", "shop", "--ts", "5", "--decimals", "string")
    done = command("decode", *binlog_files(), "--format", "debezium", *options)
    assert done.returncode == 0, done.stderr.decode()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [line["message"] for line in lines if line["message"]]
    places = {(e["source"]["file"], e["source"]["pos"], e["source"]["row"]) for e in events}
    assert len(places) == expected()["changes"]
    assert {event["ts_ms"] for event in events} == {5}
    assert all(line["topic"].startswith("shop.shop.") for line in lines)
    for _ in range(2):  # files of an earlier run are written again
        done = command("decode", *binlog_files(), "--format", "avro", *options, "-o", tmp_path)
        assert done.returncode == 0, done.stderr.decode()
    records: list[Any] = []
    for path in tmp_path.glob("*.avro"):
        with path.open("rb") as file:
            records += fastavro.reader(file)
    for name in ("before", "after", "source"):
        assert sorted(map(json.dumps, (event[name] for event in events))) == sorted(
            json.dumps(record[name]) for record in records
        )


def test_a_flipped_bit_is_named_by_file_and_offset(tmp_path: Path) -> None:
    data = bytearray(binlog_files()[0].read_bytes())
    data[len(data) // 2] ^= 0x10
    broken = tmp_path / "mysql-bin.000001"
    broken.write_bytes(data)
    done = command("decode", broken, "--format", "json")
    message = done.stderr.decode()
    assert done.returncode == 1
    assert "CorruptEvent" in message
    assert "mysql-bin.000001 offset" in message
    assert done.stdout.count(b"\n") > 0, "good events before the bad one come out"


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "mysql-bin.000001"
    broken.write_bytes(binlog_files()[0].read_bytes()[:-7])
    done = command("decode", broken, "--format", "json")
    assert done.returncode == 1
    assert "CorruptEvent" in done.stderr.decode()
    assert "mysql-bin.000001 offset" in done.stderr.decode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mysql-bin.000001"),
        (b"not a binlog at all", "is no binlog file"),
        (None, "mysql-bin.000001"),
    ],
)
def test_what_is_no_binlog_is_told(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "mysql-bin.000001"
    if content is not None:
        path.write_bytes(content)
    done = command("decode", path, "--format", "json")
    assert done.returncode == 1
    assert message in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_unknown_config_key(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    config.write_text('[[instance]]\ndestination = "a"\n[instance.source]\nadress = "h:1"\n')
    for name in ("start", "check"):
        done = command(name, config)
        assert done.returncode == 1
        assert "did you mean 'address'" in done.stderr.decode()


def test_import_meta_says_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "meta.dat").write_text(
        '{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"orders","filter":""},'
        '"cursor":{"identity":{"slaveId":-1,"sourceAddress":{"address":"db","port":3306}},"postion"'
        ':{"included":false,"journalName":"mysql-bin.000002","position":98,"timestamp":0}}}],'
        '"destination":"orders"}'
    )
    config = tmp_path / "canal.toml"
    config.write_text(
        '[meta]\npath = "meta.db"\n'
        '[[instance]]\ndestination = "orders"\nsource.address = "db:3306"\n'
    )
    away = command("import-meta", config, tmp_path / "meta.dat")
    assert away.returncode == 1
    assert b"--unchecked" in away.stderr
    done = command("import-meta", config, tmp_path / "meta.dat", "--unchecked")
    assert done.stdout == b"orders: client 1001 at mysql-bin.000002:98, filter ''\n", done.stderr
    again = command("import-meta", config, tmp_path / "meta.dat", "--unchecked")
    assert again.returncode == 1
    assert b"--replace overwrites" in again.stderr


def test_start_runs_until_a_signal_and_stops_cleanly(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    files = ", ".join(f'"{path}"' for path in binlog_files())
    config.write_text(f'[[instance]]\ndestination = "cli"\n[instance.source]\nfiles = [{files}]\n')
    environment = {**os.environ, "RAY_ADDRESS": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "ray_canal.cli", "start", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    try:
        assert process.stdout is not None
        before = b""
        for line in process.stdout:  # Ray may say something first
            before += line
            if b"cli: running" in line:
                break
        assert b"cli: running" in before, before.decode()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, rest.decode()
    assert "cli: stopped" in rest.decode()


def test_demo_shows_what_the_server_held() -> None:
    done = command("demo", "--no-spark", "--show", "3")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    for table, facts in expected()["tables"].items():
        line = next(x for x in text.splitlines() if f" {table} " in x and "│" in x)
        for number in facts["changes"].values():
            assert f"{number:,}" in line
