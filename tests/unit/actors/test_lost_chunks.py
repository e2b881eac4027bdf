"""Which failures say that a chunk is lost: those of the object, not of its owner or its reader."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    ObjectReconstructionFailedError,
    OwnerDiedError,
    RayError,
)

from ray_canal.actors.lost_chunks import RayChunkWatch, may_be_lost


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ObjectLostError("00", "owner", "site"), True),
        (ObjectReconstructionFailedError("00", "why", "owner", "site"), True),
        (OwnerDiedError("00", "owner", "site"), False),  # its store has ended, and the log with it
        (GetTimeoutError("late"), False),
    ],
)
def test_what_may_be_lost(error: RayError, lost: bool) -> None:
    assert may_be_lost(error) is lost


def test_chunks_that_are_no_references_cannot_be_lost() -> None:
    chunks: list[Any] = [b"small", object()]
    assert not asyncio.run(RayChunkWatch().lost(chunks))
    assert not asyncio.run(RayChunkWatch().unreadable(chunks, chunks))
