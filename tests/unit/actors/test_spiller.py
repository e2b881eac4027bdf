"""The spiller's folder: what it writes it reads back, what it drops is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.actors.spiller import Spiller
from ray_canal.demo import binlog_files
from ray_canal.errors import InstanceError
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks


def test_chunks_come_back_and_files_go(tmp_path: Path) -> None:
    info, decoded = next(iter(decode_chunks(binlog_files()[:1])))
    chunk = TransactionBuffer(EntryPosition(info.head.journal_name, 4)).add(info)
    spiller = Spiller(str(tmp_path / "log"))
    segment = spiller.write(chunk, decoded)
    assert Path(segment.path).stat().st_size >= segment.size_bytes > decoded.arena.size
    assert (spiller.read(segment).arena == decoded.arena).all()
    assert spiller.read_log_chunk(segment).after == chunk.after
    spiller.drop([segment])
    spiller.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(InstanceError):
        spiller.read(segment)
