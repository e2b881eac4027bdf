"""Messages that a consumer gave up come back to it, and to nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.dead_letters import DeadLetters, Letter, pack, unpack
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, CorruptEvent
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_files
from ray_canal.redrive import redrive


@pytest.fixture(scope="module")
def batches() -> list[pa.RecordBatch]:
    """Of a small shop: every kind of column that it has, and the metadata of each table."""
    tables = list(decode_files(binlog_files()[:1]))
    return [batch.slice(3 * k, 3) for k in range(3) for batch in tables][:6]


def config(folder: Path) -> dict[str, Any]:
    return {
        "meta": {"path": str(folder / "meta.db")},
        "instance": [{"destination": "d", "source": {"address": "127.0.0.1:3306"}}],
    }


def message(id: int, *batches: pa.RecordBatch) -> Any:
    return SimpleNamespace(
        id=id, start=EntryPosition("bin.000001", 100 * id), batches=list(batches)
    )


def test_each_comes_back_once_as_it_was(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    """P5: in the log's order, with the reason, after a restart; twice kept is kept once."""
    with DeadLetters(config(tmp_path), "d", 7) as letters:
        letters.keep(message(2, *batches[2:4]), "no such customer")
        letters.keep(message(1, *batches[:2]), "too large")
        letters.keep(message(1, *batches[:2]), "too large")
    with DeadLetters(config(tmp_path), "d", 8) as others:
        others.keep(message(1, batches[5]), "theirs")
        assert len(others) == 1
    with DeadLetters(config(tmp_path), "d", 7) as letters:
        assert len(letters) == 2
        for _ in range(2):
            found = list(letters.redrive(keep=True))
            assert [letter.reason for letter in found] == ["too large", "no such customer"]
            assert [each for letter in found for each in letter.batches] == batches[:4]
            kept = [each.schema.metadata for letter in found for each in letter.batches]
            assert kept == [each.schema.metadata for each in batches[:4]]
        given = letters.redrive()
        assert next(given).reason == "too large"
        given.close()  # it was not asked for the next one: nothing is removed
        assert len(letters) == 2
        assert len(list(letters.redrive())) == 2
        assert len(letters) == 0
    with DeadLetters(config(tmp_path), "d", 8) as others:
        assert len(others) == 1


def test_messages_that_begin_at_one_place_are_told_apart(
    tmp_path: Path, batches: list[pa.RecordBatch]
) -> None:
    """Of a compressed transaction, which has one place in the log; of a log that was reset; and one
    that came again with more rows."""

    def placed(name: str, number: int) -> pa.RecordBatch:
        at = batches[0].schema.get_field_index(name)
        numbers = pa.array([number] * batches[0].num_rows, batches[0].schema.field(at).type)
        return batches[0].set_column(at, name, numbers)

    first, second, later = placed("row", 2), placed("row", 10), placed("timeline", 5)
    cut = first.slice(0, 1)
    with DeadLetters(config(tmp_path), "d", 7) as letters:
        for batch in (later, second, first, cut, first):
            letters.keep(message(1, batch), "why")
        found = [letter.batches[0] for letter in letters.redrive(keep=True)]
    assert found[2:] == [second, later]
    assert found[:2] in ([first, cut], [cut, first])


def test_the_command_gives_them_too(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    """P5: `ray-canal redrive` has one store for all that is held."""
    with DeadLetters(config(tmp_path), "d", 7) as letters:
        letters.keep(message(1, *batches[:2]), "why")
    assert list(redrive(config(tmp_path), "d", keep=True)) == [batches[:2]]
    assert list(redrive(config(tmp_path), "d")) == [batches[:2]]
    assert list(redrive(config(tmp_path), "d")) == []


def test_the_command_gives_one_subscriber_its_own_alone(
    tmp_path: Path, batches: list[pa.RecordBatch]
) -> None:
    """P5: its letters are printed and removed; another one's stay."""
    toml = tmp_path / "canal.toml"
    toml.write_text(
        f'[meta]\npath = "{tmp_path / "meta.db"}"\n[[instance]]\ndestination = "d"\n'
        '[instance.source]\naddress = "127.0.0.1:3306"\n'
    )
    for client, batch in ((7, batches[0]), (8, batches[1])):
        with DeadLetters(toml, "d", client) as letters:
            letters.keep(message(1, batch), "why")
    command = [sys.executable, "-m", "ray_canal", "redrive", str(toml), "d", "--client-id=7"]
    given = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    rows = [json.loads(line) for line in given.stdout.splitlines()]
    assert len(rows) == batches[0].num_rows
    assert list(redrive(toml, "d", client_id=7)) == []
    assert list(redrive(toml, "d", client_id=8, keep=True)) == [[batches[1]]]
    assert list(redrive(toml, "d", keep=True)) == [[batches[1]]]


def test_a_destination_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no destination 'x'"):
        DeadLetters(config(tmp_path), "x", 7)


@pytest.mark.parametrize("cut", [0, 5, 40])
def test_what_is_damaged_is_said_to_be(cut: int, batches: list[pa.RecordBatch]) -> None:
    packed = pack(Letter(1.0, "why", batches[:1]))
    assert unpack(packed).batches == batches[:1]
    with pytest.raises(CorruptEvent, match="dead letter"):
        unpack(packed[:cut])
