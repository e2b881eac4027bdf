"""Calls, answers and chunks over Flight: what goes in comes out, and nothing else is understood."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.flight_wire import (
    METHODS,
    CallAnswer,
    Head,
    Wishes,
    chunk_of,
    chunk_reader,
    packed_call,
    unpacked_call,
)
from ray_canal.demo import binlog_files
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    DestinationApi,
    GetRequest,
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.errors import BatchNotFirst, CanalError, ConfigError
from ray_canal.model.log_context import OpenTransaction
from ray_canal.model.message import Caller, MessageHead, MessagePart
from ray_canal.model.position import EntryPosition
from ray_canal.model.subscription import Subscription
from ray_canal.offline import decode_chunks
from ray_canal.views.entries import iter_entries
from ray_canal.views.table_events import change_batches

PLACE = EntryPosition("mysql-bin.000002", 4711, 3, "a:1-7", 5, 2, 6, "t", 8, "b:9", True)
NOON = dt.datetime(2026, 11, 24, 12, tzinfo=dt.timezone.utc)
REQUESTS = [
    (DestinationApi.unsubscribe, ClientRequest(client_id=7, holder="h")),
    (DestinationApi.get, GetRequest(client_id=7, holder="h", batch_size=10, timeout=None)),
    (
        DestinationApi.poll,
        PollRequest(
            client_id=7, batch_size=1, timeout=0.5, caller=Caller("c", 3, 1, 2), done=(4, 5)
        ),
    ),
    (DestinationApi.ack, AckRequest(client_id=7, batch_id=3, epoch=None, keep=True)),
    (DestinationApi.rollback, RollbackRequest(client_id=7, batch_id=None, epoch=2)),
]
STARTS = [None, "head", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "2026-01-01", PLACE, NOON]


@pytest.mark.parametrize(("method", "request_"), REQUESTS)
def test_calls(method: Any, request_: Any) -> None:
    assert unpacked_call(packed_call("d", method, request_)) == ("d", method, request_)


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_subscriptions(start: Any) -> None:
    wishes = Subscription("spill", True, start, True)
    request = SubscribeRequest(client_id=1 << 30, holder="h", filter="a\\..*", wishes=wishes)
    call = packed_call("d", DestinationApi.subscribe, request)
    _, method, found = unpacked_call(call)
    assert (method, found) == (DestinationApi.subscribe, request)
    assert type(found.wishes.start) is type(start)  # type: ignore[attr-defined]


def test_a_wish_for_a_snapshot_arrives() -> None:
    """A new subscriber that asks for the rows there are must not begin without them."""
    for each in fields(Subscription):
        assert each.name in Wishes.model_fields, each.name
    for wish in ("initial", "never", None):
        wishes = Subscription(snapshot=wish)  # type: ignore[arg-type]
        request = SubscribeRequest(client_id=1, holder="h", filter="", wishes=wishes)
        call = packed_call("d", DestinationApi.subscribe, request)
        assert unpacked_call(call)[2] == request
        assert (b"snapshot" in call) == (wish is not None)  # a port that does not know it refuses


def test_each_field_of_a_position_arrives() -> None:
    head = MessageHead(1, 2, start=PLACE, end=PLACE, ack=PLACE)
    found = Head.of(head, []).model_validate_json(Head.of(head, []).model_dump_json())
    for place in (found.message_head().start, found.message_head().ack):
        for each in fields(EntryPosition):
            assert getattr(place, each.name) == getattr(PLACE, each.name)


@pytest.mark.parametrize(
    "call",
    [
        b"",
        b"{}",
        b'{"destination": "d", "method": "stop", "request": {"client_id": 1}}',
        b'{"destination": "d", "method": "operate", "request": {"client_id": 1}}',
        b'{"destination": "d", "method": "ack", "request": {"client_id": "x"}}',
        b'{"destination": "d", "method": "subscribe", "request": {"client_id": 1}}',
    ],
)
def test_what_is_no_call_is_refused(call: bytes) -> None:
    with pytest.raises(ConfigError):
        unpacked_call(call)


def test_only_calls_of_clients_can_be_made() -> None:
    assert not set(METHODS) & {"stop", "operate", "status", "change_filter", "check_chunks"}


EMPTY_HEAD = MessageHead(9, 8)


def test_heads() -> None:
    mask = np.array([True, False, True] * 5, np.bool_)
    part = MessagePart("payload", 1, 15, mask, "g", True, OpenTransaction(4, 5, (("a", "b", 6),)))
    head = MessageHead(
        9, 8, (part, replace(part, mask=None, tables=b"\0\1\xff")), 10, 11, PLACE, PLACE, None,
        True, "Asia/Tokyo", True, "f", "b", "error", 12, True,
    )  # fmt: skip
    answer = CallAnswer.model_validate_json(
        CallAnswer(head=Head.of(head, ["x", "y"])).model_dump_json()
    )
    found = answer.result()
    assert [each.payload for each in found.parts] == ["x", "y"]
    assert found.parts[0].mask.tolist() == mask.tolist()
    assert found.parts[0].open == part.open
    assert (found.parts[1].mask, found.parts[1].tables) == (None, b"\0\1\xff")
    assert replace(found, parts=()) == replace(head, parts=(), untracked=False)


def test_small_chunks_come_with_their_message() -> None:
    for _, chunk in decode_chunks(binlog_files()[:1]):
        small = DecodedChunk(chunk.layout, chunk.arena[:999])
        head = replace(EMPTY_HEAD, parts=(MessagePart(small, 0, 1, None),))
        sent = Head.of(head, ["not asked for"])
        (part,) = Head.model_validate_json(sent.model_dump_json()).message_head().parts
        assert part.payload.layout == chunk.layout
        assert part.payload.arena.tobytes() == small.arena.tobytes()


def test_errors_keep_their_class() -> None:
    data = CallAnswer.of_error(BatchNotFirst("batchId:2 is not the first")).model_dump_json()
    with pytest.raises(BatchNotFirst, match="is not the first"):
        CallAnswer.model_validate_json(data).result()
    for name in ("SystemExit", "Any", "dataclass"):
        with pytest.raises(CanalError, match="what") as raised:
            CallAnswer(error=name, text="what").result()
        assert type(raised.value) is CanalError


def test_chunks_give_the_same_batches_and_entries() -> None:
    for _, chunk in decode_chunks(binlog_files()):
        reader = chunk_reader(chunk)
        found = chunk_of(reader.schema, reader)
        assert found.layout == chunk.layout
        assert found.arena.tobytes() == chunk.arena.tobytes()
        count = chunk.layout.event_count
        assert list(change_batches(found, 0, count)) == list(change_batches(chunk, 0, count))
        mine = [e.SerializeToString() for e in iter_entries(found, 0, count, None)]
        assert mine == [e.SerializeToString() for e in iter_entries(chunk, 0, count, None)]
        assert json.loads(reader.schema.metadata[b"layout"])
