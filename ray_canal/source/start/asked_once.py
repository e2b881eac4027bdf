"""A log that is asked each thing once: what a decision about several cursors needs to know of a
server costs a query each, whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ray_canal.binlog.chunk import RawChunk
from ray_canal.model.position import EntryPosition, SourceIdentity
from ray_canal.source.start.log_file import Log

Answer = TypeVar("Answer")


class AskedOnce:
    """The port `Log` over another log. Its end and its files' bytes are asked for each time."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[str, Any] = {}

    def _once(self, name: str, ask: Callable[[], Answer]) -> Answer:
        if name not in self._known:
            self._known[name] = ask()
        answer: Answer = self._known[name]
        return answer

    @property
    def identity(self) -> SourceIdentity:
        return self._log.identity

    @property
    def is_mariadb(self) -> bool:
        return self._once("is_mariadb", lambda: self._log.is_mariadb)

    def files(self) -> Sequence[tuple[str, int]]:
        return self._once("files", self._log.files)

    def end(self) -> EntryPosition:
        return self._log.end()

    def executed(self) -> str:
        return self._once("executed", self._log.executed)

    def known_gtids(self) -> str:
        return self._once("known_gtids", self._log.known_gtids)

    def purged(self) -> str:
        return self._once("purged", self._log.purged)

    def offsets_max(self) -> int:
        return self._once("offsets_max", self._log.offsets_max)

    def takes_gtid_sets(self) -> bool:
        return self._once("takes_gtid_sets", self._log.takes_gtid_sets)

    def leaves_rows_out(self) -> str:
        return self._once("leaves_rows_out", self._log.leaves_rows_out)

    def now_us(self) -> int:
        return self._log.now_us()

    def chunks(self, journal_name: str, chunk_bytes: int) -> Iterator[RawChunk]:
        return self._log.chunks(journal_name, chunk_bytes)
