"""Texts out of a chunk, as Python copies and decodes them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.kernels.framing.texts import copy_texts, first_broken
from ray_canal.model.arrays import Int64s


def bounds_of(texts: list[bytes]) -> Int64s:
    ends = np.cumsum([0, *map(len, texts)])
    return np.stack([ends[:-1], ends[1:]], axis=1)


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_the_first_one_that_is_not_utf8(seed: int) -> None:
    """A character that two texts share is broken in both."""
    rng = random.Random(seed)
    whole = "".join(rng.choices("abcä€😀", k=60)).encode()
    cuts = sorted(rng.sample(range(len(whole)), 5))
    texts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    data = np.frombuffer(b"".join(texts), np.uint8)
    broken = [k for k, text in enumerate(texts) if not is_utf8(text)]
    assert first_broken(data, bounds_of(texts)) == (broken[0] if broken else -1)


def test_copies_lie_one_behind_the_other() -> None:
    texts = [b"one", b"", b"three"]
    data = np.frombuffer(b"".join(texts), np.uint8)
    target = np.zeros(12, np.uint8)
    copy_texts(data, bounds_of(texts)[::-1].copy(), target, 2)
    assert target.tobytes() == b"\0\0threeone\0\0"
