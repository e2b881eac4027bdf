"""How large the chunks of a server's stream are."""

from __future__ import annotations

import pytest

from ray_canal.source.port import Source
from tests.dumps import instance, opened
from tests.servers import Server

_LINGER_S = 2.0
_ROW_BYTES, _ROWS = 60_000, 1_000
_MIB = 1 << 20


def _sizes(source: Source, at_least: int) -> list[int]:
    """Of the next chunks, up to one that a pause has ended; in MiB."""
    found: list[int] = []
    while sum(found) < at_least:
        chunk = source.read(_LINGER_S, 30.0)
        assert chunk is not None, f"nothing behind {found}"
        found.append(chunk.data.size)
    return [round(size / _MIB) for size in found]


@pytest.mark.parametrize("chunk_bytes", [24 * _MIB, 2 * _MIB])
def test_chunks_grow_in_a_stream_and_are_half_as_large_after_a_pause(
    mysql97: Server, chunk_bytes: int
) -> None:
    mysql97.execute(
        "create database if not exists sizes",
        "create table if not exists sizes.t (id int auto_increment primary key, v mediumtext)",
        "set cte_max_recursion_depth = 1000000",
    )

    def fill() -> None:
        mysql97.execute(
            f"insert into sizes.t (v) with recursive n (k) as (select 1 union all select k + 1 from"
            f" n where k < {_ROWS}) select repeat('v', {_ROW_BYTES}) from n"
        )

    with opened(instance(mysql97, chunk_bytes)) as source:
        fill()
        first = _sizes(source, _ROWS * _ROW_BYTES)
        fill()
        second = _sizes(source, _ROWS * _ROW_BYTES)
    if chunk_bytes == 2 * _MIB:
        assert set(first[:-1]) == set(second[:-1]) == {2}
    else:
        assert first[:4] == [4, 8, 16, 24]
        assert second[:2] == [12, 24]
