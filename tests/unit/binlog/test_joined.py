"""Arrays that lie one behind the other are one without a copy; others are copied."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkLayout, DecodedChunk, joined


def test_neighbours_are_one_array_that_keeps_them() -> None:
    whole = np.arange(1000, dtype=np.int64).view(np.uint8)
    whole.flags.writeable = False
    one = joined([whole[:100], whole[100:4096], whole[4096:]])
    assert np.shares_memory(one, whole)
    assert not one.flags.writeable
    copy = whole.copy()
    del whole
    gc.collect()
    assert (one == copy).all()


def test_others_are_copied_in_their_order() -> None:
    whole = np.arange(1000, dtype=np.int64).view(np.uint8)
    parts = [whole[:64], whole[128:256], whole[64:128]]
    assert (joined(parts) == np.concatenate(parts)).all()
    assert joined([]).size == 0


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, (5 << 20) + 17])
@pytest.mark.parametrize("in_band", [True, False])
def test_a_chunk_survives_a_pickle(size: int, in_band: bool) -> None:
    arena = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    chunk = DecodedChunk(ChunkLayout("b.000001", 0, 0, 0, 0, 0, 0, ()), arena)
    buffers: list[pickle.PickleBuffer] = []
    packed = pickle.dumps(chunk, 5, buffer_callback=None if in_band else buffers.append)
    assert all(each.raw().nbytes <= 1 << 20 for each in buffers)
    found = pickle.loads(packed, buffers=buffers)
    assert found.layout == chunk.layout
    assert (found.arena == arena).all()
    assert in_band or not size or np.shares_memory(found.arena, arena)
