"""Messages that came over Canal's TCP protocol: entries as bytes, no Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal import packet as packets
from ray_canal.canal.generated import EntryProtocol_pb2 as entry_pb
from ray_canal.client.message import Message
from ray_canal.errors import ConsumerError
from ray_canal.model.message import MessageHead


@dataclass(frozen=True, slots=True)
class TcpHead(MessageHead):
    """A batch's head with its entries as they came."""

    raw: tuple[bytes, ...] = ()


class TcpMessage(Message):
    """A batch of entries that are bytes already. There is no Arrow view of it."""

    @property
    def _raw(self) -> tuple[bytes, ...]:
        head = self.head
        return head.raw if isinstance(head, TcpHead) else ()

    @property
    def row_count(self) -> int:
        """Rows (changes) in the batch; the entries are parsed for it."""
        return sum(
            int(pair.value)
            for entry in self.entries
            for pair in entry.header.props
            if pair.key == "rowsCount"
        )

    @property
    def entries(self) -> Iterator[Any]:
        """Canal's view: `Entry` protobuf messages, parsed one at a time."""
        return (entry_pb.Entry.FromString(raw) for raw in self._raw)

    @property
    def entry_pieces(self) -> Iterator[bytes]:
        """The same entries as bytes: varint length + `Entry`."""
        return (packets.varint(len(raw)) + raw for raw in self._raw)

    @property
    def chunks(self) -> list[DecodedChunk]:
        """Refuse: over Canal's TCP there are no chunks. Raises ConsumerError."""
        raise ConsumerError(
            "over TCP there are entries, no Arrow batches; connect by Ray or Arrow Flight "
            "(grpc://…) for those"
        )
