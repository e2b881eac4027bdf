"""Table maps of a chunk, against a dictionary: which body a table id stands for in a statement."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.kernels.framing import table_maps as m

pytestmark = pytest.mark.without_compiler

_ID_BYTES = 6
_BODIES = [bytes([k]) * size for k in range(4) for size in (2, 9, 30)]


def _tables(columns: int) -> m.TableMaps:
    size = 16
    while size < 2 * (columns + 1):
        size *= 2
    slots, ids, active, since = np.full((4, size), -1, np.int64)
    maps = np.empty((m.MAP_FIELDS, columns), np.int64)
    return m.TableMaps(maps, slots, ids, active, since, np.zeros(m.COUNTS, np.int64))


@pytest.mark.parametrize("seed", range(20))
def test_a_table_id_stands_for_its_last_map_in_its_statement(seed: int) -> None:
    draw = random.Random(seed)
    tables = _tables(1 + len(_BODIES))
    known: dict[int, tuple[bytes, int]] = {}
    events: list[tuple[int, bytes, int]] = []
    for statement in range(40):
        for _ in range(draw.randrange(3)):
            events.append((draw.choice([1, 2, 3, 1 << 40]), draw.choice(_BODIES), statement))
    data = np.frombuffer(
        b"".join(number.to_bytes(_ID_BYTES, "little") + body for number, body, _ in events),
        np.uint8,
    )
    at = 0
    for number, body, statement in events:
        end = at + _ID_BYTES + len(body)
        assert m.note_map(data, (at, at, end), _ID_BYTES, statement, tables)
        known[number] = body, statement
        at = end
        for each, (wanted, since) in known.items():
            column = m.map_of(each, since, tables)
            start, stop = tables.maps[[m.M_START, m.M_END], column]
            assert data[start:stop].tobytes() == wanted
            assert m.map_of(each, since + 1, tables) == -1
        assert m.map_of(99, statement, tables) == -1
    assert tables.counts[m.MAPS] == len({body for _, body, _ in events})


def test_more_maps_than_columns_find_no_room() -> None:
    tables = _tables(1)
    data = np.frombuffer(b"\1" * _ID_BYTES + b"one" + b"\1" * _ID_BYTES + b"two", np.uint8)
    assert m.note_map(data, (0, 0, 9), _ID_BYTES, 0, tables)
    assert not m.note_map(data, (9, 9, 18), _ID_BYTES, 0, tables)
