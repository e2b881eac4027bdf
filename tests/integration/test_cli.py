"""The command as a user types it: its output, its exit codes, what it says of bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ray_canal.cli import app
from ray_canal.demo import binlog_files, expected


def command(*arguments: object, timeout_s: float = 180) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "ray_canal", *(str(a) for a in arguments)],
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def test_help_lists_every_command() -> None:
    done = command("--help")
    assert done.returncode == 0
    for name in ("start", "stop", "status", "tail", "check", "decode", "verify", "import", "demo"):
        assert name in done.stdout.decode()
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


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


@pytest.mark.ray
def test_start_runs_until_a_signal_and_stops_cleanly(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    files = ", ".join(f'"{path}"' for path in binlog_files())
    config.write_text(f'[[instance]]\ndestination = "cli"\n[instance.source]\nfiles = [{files}]\n')
    environment = {**os.environ, "RAY_ADDRESS": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "ray_canal", "start", str(config)],
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


@pytest.mark.ray
def test_demo_shows_what_the_server_held() -> None:
    done = command("demo", "--no-spark", "--show", "3")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    for table, facts in expected()["tables"].items():
        line = next(x for x in text.splitlines() if f" {table} " in x and "│" in x)
        for number in facts["changes"].values():
            assert f"{number:,}" in line
