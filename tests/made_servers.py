"""Servers of one replication topology, made of the bundled binlog: the same transactions, each
server's log cut into files by itself, under names, at positions and in seconds of its own."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ray_canal.demo import binlog_files
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import SourceIdentity
from ray_canal.source.start.files_log import FilesLog

MAGIC = b"\xfebin"
_STOP, _ROTATE, _FORMAT, _GTID, _PREVIOUS_GTIDS = 3, 4, 15, 33, 35


@dataclass(frozen=True)
class Transaction:
    """Its GTID event and all that follow; `gtid` as (source, number)."""

    data: bytes
    gtid: tuple[bytes, int]


def events(data: bytes) -> list[bytes]:
    found, at = [], len(MAGIC)
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        found.append(data[at : at + size])
        at += size
    return found


@lru_cache(maxsize=1)
def transactions() -> tuple[bytes, list[Transaction]]:
    """(FORMAT_DESCRIPTION, all of the bundled files' transactions)."""
    head, parts = b"", list[list[bytes]]()
    for path in binlog_files():
        for event in events(path.read_bytes()):
            if event[4] == _FORMAT:
                head = event
            elif event[4] == _GTID:
                parts.append([event])
            elif event[4] not in (_STOP, _ROTATE, _PREVIOUS_GTIDS):
                parts[-1].append(event)
    made = []
    for part in parts:
        source, number = part[0][20:36], struct.unpack_from("<q", part[0], 36)[0]
        made.append(Transaction(b"".join(part), (source, number)))
    return head, made


def _sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def _format_event(created_s: int) -> bytes:
    head, _ = transactions()
    return _sealed(struct.pack("<I", created_s) + head[4:-4])


def _previous_gtids(before: Sequence[Transaction], created_s: int) -> bytes:
    executed = GtidSet.parse("")
    for one in before:
        executed.add_range(one.gtid[0], one.gtid[1], one.gtid[1], "")
    body = _encoded(executed)
    size = 19 + len(body) + 4
    return _sealed(struct.pack("<IBIIIH", created_s, _PREVIOUS_GTIDS, 1, size, 0, 0) + body)


def _encoded(gtids: GtidSet) -> bytes:
    """As PREVIOUS_GTIDS has it: sources, each with its intervals, ends exclusive."""
    text = str(gtids)
    if not text:
        return struct.pack("<Q", 0)
    parts = [each.split(":") for each in text.split(",")]
    body = struct.pack("<Q", len(parts))
    for uuid, *intervals in parts:
        body += bytes.fromhex(uuid.replace("-", "")) + struct.pack("<Q", len(intervals))
        for interval in intervals:
            first, _, last = interval.partition("-")
            body += struct.pack("<QQ", int(first), int(last or first) + 1)
    return body


class MadeServer(FilesLog):
    """A server with the first `count` transactions (None: all of them). Without `gtids` it says
    that it has none, so that only commit times name a transaction."""

    def __init__(
        self,
        folder: Path,
        uuid: str,
        random_: random.Random,
        count: int | None = None,
        *,
        gtids: bool = True,
    ) -> None:
        self._gtids = gtids
        folder.mkdir(parents=True)
        _, every = transactions()
        every = every[:count]
        base = random_.choice(["mysql-bin", "binlog"])
        number = random_.choice([1, 3, 98, 999_998])
        cuts = sorted(random_.sample(range(1, len(every)), random_.randrange(4)))
        created_s = 1_790_000_000 + random_.randrange(1_000_000)
        paths = []
        for first, last in zip([0, *cuts], [*cuts, len(every)], strict=True):
            path = folder / f"{base}.{number:06d}"
            head = MAGIC + _format_event(created_s) + _previous_gtids(every[:first], created_s)
            path.write_bytes(head + b"".join(one.data for one in every[first:last]))
            paths.append(path)
            number, created_s = number + 1, created_s + 1
        super().__init__(paths)
        self.paths = paths
        self._identity = SourceIdentity(f"{uuid}:3306", uuid)

    def executed(self) -> str:
        return super().executed() if self._gtids else ""

    def purged(self) -> str:
        return super().purged() if self._gtids else ""

    @property
    def identity(self) -> SourceIdentity:
        return self._identity
