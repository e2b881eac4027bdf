"""The stages of a split upstream, without Ray: apart they make what the fused ones make."""

from __future__ import annotations

import pickle
from typing import Any, TypeVar

from ray_canal.actors.upstream.decoder import decode_chunk
from ray_canal.actors.upstream.parser import Parser
from ray_canal.actors.upstream.transaction_buffer_actor import TransactionBufferActor
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.destination.fetcher import Fetcher
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.start import ALL_CURSORS
from tests.local_destination import binlog_files, instance

T = TypeVar("T")


def sent(what: T) -> T:
    """As it arrives in another process."""
    found: T = pickle.loads(pickle.dumps(what, protocol=5))
    return found


def split() -> list[tuple[LogChunk, DecodedChunk]]:
    config = instance(binlog_files()[:1])
    fetcher, parser = Fetcher(config, False), Parser(config.model_dump_json())
    start, identity, records = fetcher.open((), "", (), ALL_CURSORS)
    parser.begin((), records, start, identity)
    buffer = TransactionBufferActor(config.model_dump_json(), start.position, "")
    found = []
    while (raw := fetcher.next_raw()[1]) is not None:
        info, decoded = decode_chunk(sent(raw), sent(parser.parse(sent(raw))))
        found.append((buffer.add(sent(info)), sent(decoded)))
    fetcher.close()
    return found


def fused() -> list[tuple[Any, DecodedChunk]]:
    fetcher, found = Fetcher(instance(binlog_files()[:1]), True), []
    fetcher.open((), "", (), ALL_CURSORS)
    while (one := fetcher.next_decoded())[0].has_chunk:
        found.append((one[0].info, one[1] or one[0].payload))  # a small one comes along
    fetcher.close()
    return found


def test_they_make_what_one_process_makes() -> None:
    apart, together = split(), fused()
    assert len(apart) == len(together) > 1
    for (added, decoded), (info, at_once) in zip(apart, together, strict=True):
        assert (added.info.entries == info.entries).all()
        assert (decoded.arena == at_once.arena).all()
        assert decoded.layout == at_once.layout
        assert added.info.stage_seconds["buffer"] >= 0
