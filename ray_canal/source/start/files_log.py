"""Local binlog files as a log to search (log_file.py's port)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ray_canal.binlog.chunk import FLAVOR_MARIADB, OnUndecodable, RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.model.position import EntryPosition, SourceIdentity
from ray_canal.source.binlog_files import MAGIC, check_magic
from ray_canal.source.gtid_sets import is_mysql_set
from ray_canal.source.start.log_file import read_head, transactions
from ray_canal.source.start.search import Search

_HEAD_BYTES = 64 << 10


class FilesLog:
    """Files in order. `read` names those that were read: what a search cost."""

    def __init__(
        self,
        paths: Sequence[Path],
        skips: Sequence[tuple[str, int]] = (),
        on_undecodable: OnUndecodable = "stop",
    ) -> None:
        """`skips`, `on_undecodable`: see ChunkCutter."""
        self._passing: dict[str, Any] = {"skips": skips, "on_undecodable": on_undecodable}
        self._paths = {path.name: path for path in paths}
        self.read: list[str] = []

    @property
    def identity(self) -> SourceIdentity:
        return SourceIdentity(str(next(iter(self._paths.values())).parent))

    @property
    def is_mariadb(self) -> bool:
        """Return whether a MariaDB wrote the files, by the first one's head."""
        for chunk in self.chunks(next(iter(self._paths)), _HEAD_BYTES):
            return chunk.head.flavor == FLAVOR_MARIADB
        return False

    def files(self) -> Sequence[tuple[str, int]]:
        return [(name, path.stat().st_size) for name, path in self._paths.items()]

    def end(self) -> EntryPosition:
        """The last file's end; its GTIDs are those of all that it has."""
        name, size = self.files()[-1]
        return Search(self).boundary(name, size)

    def executed(self) -> str:
        return self.end().gtid

    def known_gtids(self) -> str:
        if not self.is_mariadb:
            return self.executed()
        newest = [read_head(self, next(iter(self._paths))).gtids]
        for name in self._paths:
            for some in transactions(self, name):
                for server_id in np.unique(some.gtids["server_id"]):
                    of_server = some.gtids[some.gtids["server_id"] == server_id]
                    newest.append(gtid_set_after("", of_server))
        return ",".join(filter(None, newest))

    def offsets_max(self) -> int:
        return 1 << 63

    def takes_gtid_sets(self) -> bool:
        return True

    def leaves_rows_out(self) -> str:
        return ""

    def purged(self) -> str:
        gtids = read_head(self, next(iter(self._paths))).gtids
        return gtids if is_mysql_set(gtids) else ""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def chunks(self, journal_name: str, chunk_bytes: int) -> Iterator[RawChunk]:
        path = self._paths[journal_name]
        self.read.append(journal_name)
        cutter = ChunkCutter(chunk_bytes, contiguous=True, **self._passing)
        cutter.begin_file(journal_name)
        with open(path, "rb") as file:
            check_magic(path, file.read(len(MAGIC)))
            while data := file.read(max(chunk_bytes, _HEAD_BYTES)):
                cutter.feed(data)
                while (chunk := cutter.next()) is not None:
                    yield chunk
        if (rest := cutter.flush()) is not None:
            yield rest
