"""How events are framed for mysql-replication, and what becomes of those that it cannot read."""

from __future__ import annotations

import builtins
import struct
from pathlib import Path
from typing import Any

import pytest

import ray_canal.demo
from ray_canal.errors import ConfigError
from ray_canal.verify.second_reader import Framed, SecondReader, file_events, require_library

FILE = sorted(Path(ray_canal.demo.__file__).parent.glob("mysql-bin.*"))[0]


def test_events_are_the_file(tmp_path: Path) -> None:
    framed = list(file_events(FILE))
    assert b"".join(event.data for event in framed) == FILE.read_bytes()[4:]
    assert [event.position for event in framed][:1] == [4]
    cut = tmp_path / FILE.name
    cut.write_bytes(FILE.read_bytes()[:-3])
    assert list(file_events(cut)) == framed[:-1]


def test_without_checksums_it_reads_the_same() -> None:
    framed = list(file_events(FILE))
    bare = []
    for position, data in framed:
        body = data[19:-4]
        if data[4] == 15:
            body = data[19:-5] + b"\0" + data[-4:]  # the format event keeps its checksum
        length = struct.pack("<I", 19 + len(body))
        bare.append(Framed(position, data[:9] + length + data[13:19] + body))
    ours = list(SecondReader().events(FILE.name, framed))
    assert list(SecondReader().events(FILE.name, bare)) == ours
    assert not any(event.reason for event in ours)


def test_a_failure_is_of_one_event() -> None:
    framed = list(file_events(FILE))
    number = next(k for k, event in enumerate(framed) if event.data[4] == 30)
    data = framed[number].data
    length = struct.pack("<I", len(data) - 20)
    framed[number] = framed[number]._replace(data=data[:9] + length + data[13:-24] + data[-4:])
    found = list(SecondReader().events(FILE.name, framed))
    failed = [event for event in found if event.reason]
    assert [event.position for event in failed] == [framed[number].position]
    assert "fails on the event" in failed[0].reason


@pytest.mark.parametrize(("kind", "told"), [(40, "TRANSACTION_PAYLOAD"), (166, "COMPRESSED")])
def test_compressed_events_have_a_reason(kind: int, told: str) -> None:
    framed = list(file_events(FILE))[:1]
    data = framed[0].data
    framed.append(Framed(1000, data[:4] + bytes([kind]) + data[5:]))
    (event,) = SecondReader().events(FILE.name, framed)
    assert event.position == 1000
    assert told in event.reason


def test_a_type_that_it_does_not_know_is_said() -> None:
    framed = list(file_events(FILE))
    number = next(k for k, event in enumerate(framed) if event.data[4] == 19)
    data = bytearray(framed[number].data)
    schema_bytes = data[27]
    table_bytes = data[29 + schema_bytes]
    first_type = 32 + schema_bytes + table_bytes
    data[first_type] = 14  # NEWDATE, which no server writes
    framed[number] = framed[number]._replace(data=bytes(data))
    first = next(iter(SecondReader().events(FILE.name, framed)))
    assert "unknown to mysql-replication: NEWDATE" in first.reason


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("pymysqlreplication"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'ray-canal\[verify\]'"):
        require_library()
