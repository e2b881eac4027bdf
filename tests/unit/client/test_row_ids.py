"""Whatever servers a destination goes to, and whenever: ids compare as delivery order, and keeping
the highest one loses nothing."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ray_canal as canal
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.client.message import Message
from ray_canal.config import InstanceConfig, SourceConfig, StoreConfig
from ray_canal.destination.records.timeline_record import TimelineRecord
from ray_canal.errors import PositionNotFound, TransactionsMissing
from ray_canal.filter import TableFilter
from ray_canal.log.batch import Batch
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.memory import MemoryBackend
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.model.start import StartOptions
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.files import BinlogFiles
from ray_canal.source.start.decision import decide
from tests.made_servers import MadeServer

DESTINATION, TRANSACTIONS = "d", 60
RowId = tuple[int, int, int, int]
Name = tuple[str, int]


class Server:
    """A made server and what reads it: chunks of random sizes from any place on."""

    def __init__(self, log: MadeServer, random_: random.Random) -> None:
        self.log, self._random = log, random_
        self._parser = EventParser(SchemaRegistry(), SchemaKeeper(None))
        self.everything = self.chunks(None)  # so that the parser knows all schemas

    def chunks(self, start: EntryPosition | None) -> list[tuple[ChunkInfo, DecodedChunk]]:
        given_ = {"files": [str(path) for path in self.log.paths]}
        files = BinlogFiles(InstanceConfig.model_validate({"destination": "d", "source": given_}))
        size = self._random.choice([700, 5000, 100_000])
        files._new_cutter = lambda: ChunkCutter(size, contiguous=True)  # type: ignore[method-assign]
        files.open(start)
        found = []
        while not files.finished:
            raw = files.read(0.0, 0.0)
            if raw is not None:
                found.append(self._parser.decode_chunk(raw))
        files.close()
        return found


@dataclass
class Consumer:
    """Keeps the highest id that it took, skips what is not above it, and knows what came."""

    terms: Terms
    highest: RowId = (0, 0, 0, 0)
    taken: list[tuple[RowId, Name]] = field(default_factory=list)
    came: dict[RowId, Name] = field(default_factory=dict)

    def take(self, message: Message) -> None:
        for part in message.batches_by_part():
            rows = [row for batch in part for row in batch.to_pylist()]
            for row in sorted(rows, key=lambda row: (row["position"], row["row"])):
                this, name = canal.row_id(row), (row["transaction"], row["transaction_row"])
                if this <= self.highest:
                    assert self.came.get(this) == name, "what is not above is a repeat"
                    continue
                self.highest = this
                self.came[this] = name
                self.taken.append((this, name))


class Life:
    """A destination's lives: cursors and timeline as they are kept, all else made again."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._meta = MetaManager(MemoryBackend())
        whole = random_.random() < 0.3
        self.consumers = {
            1: Consumer(Terms(TableFilter(""), transactions=whole)),
            2: Consumer(Terms(TableFilter(r"shop\.order.*"), transactions=not whole)),
        }
        self.timelines: list[int] = []

    def begin(self, server: Server) -> None:
        """A generation at this server. Raises TransactionsMissing, PositionNotFound."""
        known = self._meta.load(DESTINATION)
        cursors = {i: m.cursor for i, m in known.items() if m.cursor is not None}
        source = SourceConfig.model_validate(
            {"address": "x:1", **dict.fromkeys(("start", "on_reset", "on_purged"), "earliest")}
        )
        log = server.log
        start = decide(source, [*cursors.values()], log, "", StartOptions())
        self._epoch = self._meta.acquire(DESTINATION)
        timeline = TimelineRecord(DESTINATION)
        timeline.enter(self._meta, self._epoch, log.identity, start.same_log)
        self.timelines.append(timeline.number)
        self._identity = log.identity
        at = dict(zip(cursors, start.cursors, strict=True))
        buffer = TransactionBuffer(start.position.boundary, start.position.gtid)
        self.store = EventStore(StoreConfig(), start.position.boundary)
        for client_id, consumer in self.consumers.items():
            cursor = at.get(client_id)
            self.store.subscribe(client_id, consumer.terms, cursor or start.position)
            if cursor is not None:
                self._save(client_id, cursor)
        for info, chunk in server.chunks(start.position.boundary):
            self.store.put(buffer.add(info), chunk)
        self.store.flush()

    def forget_cursors(self) -> None:
        for client_id in self._meta.load(DESTINATION):
            self._meta.remove(DESTINATION, self._epoch, client_id)

    def _save(self, client_id: int, cursor: EntryPosition) -> None:
        place = LogPosition(self._identity, cursor)
        self._meta.save(DESTINATION, self._epoch, SubscriberMeta(client_id, "", place))

    def step(self, client_id: int) -> bool:
        """One get, and mostly its ack. False: nothing more comes."""
        batch = self.store.get(client_id, self._random.choice([1, 4, 16, 64]))
        if batch is None:
            return False
        self.consumers[client_id].take(self._message(batch))
        if self._random.random() < 0.8 and self.store.batch_ids(client_id)[0] == batch.id:
            self._save(client_id, self.store.cursor_after(client_id, batch.id))
            self.store.ack(client_id, batch.id)
        elif self._random.random() < 0.5:
            self.store.rollback(client_id)
        return True

    def _message(self, batch: Batch) -> Message:
        parts = tuple(
            MessagePart(p.payload, p.first, p.last, p.mask, p.gtid_set, open=p.open)
            for p in batch.parts
        )
        head = MessageHead(batch.id, self._epoch, parts, timeline=self.timelines[-1])
        return Message(head, lambda payloads: payloads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@settings(max_examples=8, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 32))
def test_random_lives(folder: Path, seed: int) -> None:
    """A6, b4: logs cut at random, servers that change, are reset and lag behind, random acks."""
    random_ = random.Random(seed)
    made = folder / f"{seed}-{len(list(folder.iterdir()))}"
    servers: list[Server] = []
    gtids = random_.random() < 0.7
    for number in range(4):
        uuid = random_.choice(["a", "b", "c"])  # of one that comes again the log was reset
        count = TRANSACTIONS if not number else random_.randrange(30, TRANSACTIONS + 1)
        log = MadeServer(made / str(number), uuid, random_, count, gtids=gtids)
        servers.append(Server(log, random_))
    wanted = {name for _, name in rows_of(servers[0])}
    life = Life(random_)
    life.begin(servers[0])
    for _ in range(random_.randrange(8)):
        for _ in range(random_.randrange(40)):
            life.step(random_.choice([1, 2]))
        with contextlib.suppress(TransactionsMissing, PositionNotFound):
            life.begin(random_.choice(servers))  # the log of before goes on serving
    try:
        life.begin(servers[0])
    except PositionNotFound:  # a cursor of which nothing is known that both servers have
        life.forget_cursors()
        life.begin(servers[0])
    while any([life.step(1), life.step(2)]):
        pass
    assert life.timelines == sorted(life.timelines)
    taken = {name for _, name in life.consumers[1].taken}
    assert taken == wanted
    for consumer in life.consumers.values():
        names = {(this[0], name) for this, name in consumer.taken}
        assert len(names) == len(consumer.taken), "once within a timeline"


def rows_of(server: Server) -> list[tuple[RowId, Name]]:
    everything = Consumer(Terms(TableFilter("")))
    parts = []
    buffer = TransactionBuffer(EntryPosition(server.log.paths[0].name))
    for info, chunk in server.everything:
        log_chunk = buffer.add(info)
        parts.append(MessagePart(chunk, 0, len(info.entries), None, open=log_chunk.open))
    everything.take(Message(MessageHead(1, 1, tuple(parts), timeline=1), lambda found: found))
    return everything.taken
