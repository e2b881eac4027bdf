"""Runs of events: they fit exactly if every event's checksum does."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from ray_canal.kernels.base.crc import FOLDS
from ray_canal.kernels.base.crc_run import RUN_BYTES, fitting_run

FORMAT_DESCRIPTION, QUERY, TRANSACTION_PAYLOAD = 15, 2, 40


def event(rng: random.Random, length: int, kind: int = QUERY, flags: int = 0) -> bytes:
    """An event of this length, random but for its header, with its checksum."""
    head = struct.pack("<IBIIIH", rng.getrandbits(32), kind, 1, length, 0, flags)
    made = head + rng.randbytes(length - 23)
    if kind == FORMAT_DESCRIPTION:  # as servers do: what is summed has no such flag
        summed = made[:17] + struct.pack("<H", flags & ~1) + made[19:]
        return made + struct.pack("<I", zlib.crc32(summed))
    return made + struct.pack("<I", zlib.crc32(made))


def run_end(data: bytes | bytearray, at: int) -> int:
    return int(fitting_run(np.frombuffer(data, np.uint8), at))


def covers(data: bytes | bytearray, at: int, starts: set[int]) -> bool:
    """Runs one after the other reach the end; each ends where an event does."""
    while at < len(data):
        end = run_end(data, at)
        if end == at:
            return False
        assert end in starts
        at = end
    return True


def random_stream(rng: random.Random) -> tuple[bytes, list[int]]:
    """(events behind some bytes that are none of theirs, where each starts and the last ends)"""
    data = bytearray(rng.randbytes(rng.randrange(70)))
    starts = [len(data)]
    for _ in range(rng.randrange(1, 40)):
        length = rng.choice((23, 24, 31, rng.randrange(23, 200), rng.randrange(23, 3000)))
        data += event(rng, length)
        starts.append(len(data))
    return bytes(data), starts


@pytest.mark.parametrize("seed", range(60))
def test_right_events_fit_and_any_wrong_bit_does_not(seed: int) -> None:
    rng = random.Random(seed)
    data, starts = random_stream(rng)
    first, behind = starts[0], set(starts)
    assert covers(data, first, behind)
    for _ in range(20):
        broken = bytearray(data)
        place = rng.randrange(first, len(data))
        broken[place] ^= 1 << rng.randrange(8)
        owner = max(start for start in starts[:-1] if start <= place)
        if 9 <= place - owner < 13:  # its length: what follows is no event
            continue
        assert not covers(broken, first, behind), (place, owner)
        assert run_end(broken, owner) == owner
        if owner > first:  # the good ones before it are told apart from it
            at = first
            while (end := run_end(broken, at)) != at:
                at = end
            assert at == owner


def test_every_event_length_at_every_place_in_a_block() -> None:
    rng = random.Random(1)
    for before in range(23, 23 + 64):
        for length in (23, 24, 25, 26, 27, 63, 64, 65, 127, 128, 129):
            data = event(rng, before) + event(rng, length) + event(rng, 40)
            starts = {before, before + length, len(data)}
            assert covers(data, 0, starts), (before, length)


@pytest.mark.skipif(not FOLDS, reason="a run is one event here")
def test_where_a_run_ends() -> None:
    rng = random.Random(2)
    small = event(rng, 30)
    giant = event(rng, 3 * RUN_BYTES)
    assert run_end(small + giant + small, 0) == len(small + giant)
    assert run_end(giant + small, 0) == len(giant)
    for kind in (FORMAT_DESCRIPTION, TRANSACTION_PAYLOAD):
        special = event(rng, 100, kind)
        assert run_end(small + special + small, 0) == len(small)
        assert run_end(special + small, 0) == len(special)
    for length in (0, 22, 61, 1 << 31):
        impossible = small[:9] + struct.pack("<I", length) + small[13:]
        assert run_end(small + impossible, 0) == len(small), length


def test_format_description_of_a_file_in_use() -> None:
    made = event(random.Random(3), 122, FORMAT_DESCRIPTION, flags=1)
    assert run_end(made, 0) == len(made)
    assert run_end(made[:30] + b"\0\0" + made[32:], 0) == 0


NARROWER = """
import sys
import llvmlite.binding as llvm
features = llvm.get_host_cpu_features()
features[sys.argv[1]] = False
llvm.get_host_cpu_features = lambda: features
from tests.unit.kernels.base import test_crc_run as tests
for seed in range(5):
    tests.test_right_events_fit_and_any_wrong_bit_does_not(seed)
tests.test_every_event_length_at_every_place_in_a_block()
"""


@pytest.mark.parametrize("lacking", ["avx512f", "vpclmulqdq", "pclmul"])
def test_on_narrower_processors(lacking: str, tmp_path: Path) -> None:
    environment = {**os.environ, "RAY_CANAL_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", NARROWER, lacking], env=environment, check=True)
