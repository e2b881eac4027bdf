"""From one file to the next: which of them is looked at."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.source.crossing import Crossing

ROTATE, QUERY, STOP = 4, 2, 3


def event(kind: int, body: bytes = b"", at_s: int = 100, trailer: bytes = b"abcd") -> bytes:
    length = 19 + len(body) + len(trailer)
    head = at_s.to_bytes(4, "little") + bytes([kind]) + bytes(4) + length.to_bytes(4, "little")
    return head + bytes(6) + body + trailer


def rotate(name: str, at_s: int = 100, trailer: bytes = b"abcd") -> bytes:
    return event(ROTATE, (4).to_bytes(8, "little") + name.encode(), at_s, trailer)


def chunk(name: str, data: bytes, created_s: int) -> RawChunk:
    head = ChunkHead(
        sequence=0, journal_name=name, position=4, end_position=4 + len(data), created_s=created_s
    )
    return RawChunk(head, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ("end", "created_s", "is_sure"),
    [
        (rotate("b.2"), 100, True),
        (rotate("b.2"), 101, True),
        (rotate("b.2", trailer=b""), 100, True),
        (rotate("b.2"), 102, False),  # a later log's second file
        (rotate("b.2"), 99, False),
        (rotate("b.3"), 100, False),
        (event(STOP), 100, False),
        (event(QUERY, b"b.2"), 100, False),
        (b"", 100, False),
    ],
)
def test_files_fit_where_one_ends_with_the_name_of_the_other(
    end: bytes, created_s: int, is_sure: bool
) -> None:
    """A1: else the log may have been reset under the dump."""
    crossing = Crossing()
    crossing.stand("b.1", 50)
    first = chunk("b.1", event(QUERY) + end, 50)
    assert crossing.left_unsure(first) is None
    second = chunk("b.2", event(QUERY), created_s)
    assert crossing.left_unsure(second) == (None if is_sure else ("b.1", 50))
    assert crossing.left_unsure(second) is None


def test_a_file_that_was_left_without_a_chunk_of_it_is_looked_at() -> None:
    crossing = Crossing()
    crossing.stand("b.1", 50)
    assert crossing.left_unsure(chunk("b.2", b"", 100)) == ("b.1", 50)
    assert Crossing().left_unsure(chunk("b.2", b"", 100)) is None
