"""Transaction names and row numbers of Arrow batches, against a walk over the events in Python."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ray_canal import offline
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.binlog.open_transactions import OpenTransactions
from ray_canal.demo import binlog_files
from ray_canal.model.log_context import LogContext
from ray_canal.offline import decode_batches, decode_chunks
from ray_canal.views.arrow import batches
from ray_canal.views.envelope import chunk_gtids
from tests.chunk_cuts import cut_files
from tests.golden import GOLDEN
from tests.transactions_oracle import known_transactions
from tests.unit.views.test_table_events import KINDS

GTID_EVENT, ANONYMOUS = 33, 34

LOGS = {
    "gtids": [GOLDEN / "mysql97" / "mysql_dml.binlog"],
    "mariadb": [GOLDEN / "mariadb1011" / "maria_dml.binlog"],
    "xa": [GOLDEN / "mysql97" / "mysql_xa.binlog"],
    "ddl": [GOLDEN / "mysql97" / "mysql_ddl.binlog"],
    "demo": binlog_files(),
}


def without_gtids(folder: Path, *, anonymous: bool) -> Path:
    """A real file with GTIDs as a server without them writes it: its events anonymous, or none."""
    data = LOGS["gtids"][0].read_bytes()
    found, at = [data[:4]], 4
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        event = data[at : at + size]
        if event[4] == GTID_EVENT:
            bare = event[:4] + bytes([ANONYMOUS]) + event[5:20] + bytes(24) + event[44:-4]
            event = bare + struct.pack("<I", zlib.crc32(bare)) if anonymous else b""
        found.append(event)
        at += size
    path = folder / "bin.000001"
    path.write_bytes(b"".join(found))
    return path


@pytest.fixture(params=[*LOGS, "anonymous", "none"])
def paths(request: pytest.FixtureRequest, tmp_path: Path) -> Sequence[Path]:
    if request.param in LOGS:
        return LOGS[request.param]
    return [without_gtids(tmp_path, anonymous=request.param == "anonymous")]


def gtid_texts(chunk: DecodedChunk) -> list[str]:
    texts: list[str] = chunk_gtids(chunk).to_pylist()
    return texts


def in_log_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["position"], row["row"]))


@pytest.mark.parametrize("chunk_bytes", [300, 4096, 3 << 20])
def test_rows_are_numbered_through_their_transaction(
    paths: Sequence[Path], chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6: however the log is cut, a row's transaction and its number in it are the same."""
    cut_files(monkeypatch, chunk_bytes)
    wanted = []
    for known in known_transactions(decode_chunks(paths), gtid_texts):
        wanted += [(known.name, number, *place) for number, place in enumerate(known.places)]
    found = []
    for part in decode_batches(paths):
        for batch in part:
            batch.validate(full=True)
        rows = [row for batch in part for row in batch.to_pylist()]
        for row in in_log_order(rows):
            if row["event_type"] in KINDS:
                continue  # of a table as a whole
            place = (row["transaction"], row["transaction_row"], row["position"], row["row"])
            assert row["gtid"] in (None, row["transaction"])
            found.append(place)
    assert found == wanted
    assert found


def test_a_part_of_a_chunk_has_the_numbers_of_the_whole() -> None:
    """A6: a message may begin in the midst of a chunk, and see some of its tables only."""
    transactions = OpenTransactions()
    for info, chunk in decode_chunks(LOGS["demo"]):
        context = LogContext(7, transactions.add(info))
        count = chunk.layout.event_count
        whole = {
            (row["position"], row["row"]): row
            for batch in batches(chunk, 0, count, context=context)
            for row in batch.to_pylist()
        }
        mask = info.entries["table"] % 2 == 0
        for first in range(0, count, max(1, count // 5)):
            for batch in batches(chunk, first, count, mask, context=context):
                for row in batch.to_pylist():
                    assert row == whole[row["position"], row["row"]]


def test_of_a_chunk_by_itself_only_gtids_are_known(tmp_path: Path) -> None:
    chunk = next(chunk for _, chunk in decode_chunks(LOGS["gtids"]) if chunk.layout.tables)
    alone = LogContext(numbered=False)
    for batch in batches(chunk, 0, chunk.layout.event_count, context=alone):
        assert batch.column("transaction_row").null_count == batch.num_rows
        assert batch.column("transaction").equals(batch.column("gtid"))
    path = without_gtids(tmp_path, anonymous=True)
    chunk = next(chunk for _, chunk in decode_chunks([path]) if chunk.layout.tables)
    for batch in batches(chunk, 0, chunk.layout.event_count, context=alone):
        assert batch.column("transaction").null_count == batch.num_rows


def test_files_have_transactions_of_their_own(tmp_path: Path) -> None:
    """A transaction that a file breaks off is not the next file's."""
    paths = [without_gtids(tmp_path, anonymous=False), tmp_path / "bin.000002"]
    data = paths[0].read_bytes()
    end = max(
        int(event["position"]) + int(event["length"])
        for _, chunk in decode_chunks(paths[:1])
        for event in chunk.events[chunk.events["rows"] > 0]
    )
    paths[0].write_bytes(data[:end])
    paths[1].write_bytes(data)
    rows = [row for batch in offline.decode_files(paths) for row in batch.to_pylist()]
    second = [row for row in rows if row["journal_name"] == "bin.000002"]
    assert len(rows) > len(second)
    assert second[0]["transaction_row"] == 0
    assert all(row["transaction"].startswith("bin.000002:") for row in second)
