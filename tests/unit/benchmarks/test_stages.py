"""The shares of stages are those of the stamps, whatever order they were taken in."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stages import cores
from benchmarks.stages.shares import STAGES, Rows, moments, shares
from benchmarks.stages.stamps import OF_CHUNKS, stamps_in

MS = 1_000_000


def write_stamps(folder: Path, asked_ms: int) -> None:
    """Two chunks, at 100 and 200, each of one message; the stages of the second one are 1 ms each
    from 10 ms on."""
    lines = [f"{stage}\t100\t1" for stage in OF_CHUNKS] + ["asked\t1\t1", "handed out\t1\t1"]
    lines += [f"{stage}\t200\t{(10 + k) * MS}" for k, stage in enumerate(OF_CHUNKS)]
    lines += [f"asked\t2\t{asked_ms * MS}", f"handed out\t2\t{20 * MS}"]
    (folder / "1.txt").write_text("\n".join(lines[::2]), "utf-8")
    (folder / "2.txt").write_text("\n".join(lines[1::2]), "utf-8")


@pytest.mark.parametrize(
    ("committed_ms", "asked_ms", "busy", "unasked", "cut", "late"),
    [
        (8, 9, 2.0, 0.0, 1.0, 0.0),  # the reader was at the chunk before
        (10, 18, 0.0, 1.0, 0.0, 2.0),  # cut before anybody had asked
        (10, 5, 0.0, 0.0, 1.0, 0.0),
    ],
)
def test_each_millisecond_belongs_to_one_stage(
    tmp_path: Path, committed_ms: int, asked_ms: int, busy: float, unasked: float, cut: float,
    late: float,
) -> None:  # fmt: skip
    write_stamps(tmp_path, asked_ms)
    rows = Rows(*(np.array([each]) for each in (7, 230, 2, 21 * MS, 23 * MS)))
    committed = np.array([committed_ms * MS])
    found = shares(committed, moments(rows, committed, stamps_in(tmp_path)))
    spent = {stage: found[what]["p50_ms"] for stage, what in STAGES.items()}
    assert [spent[s] for s in ("reader free", "asked", "fetched")] == [busy, unasked, cut]
    assert [spent[s] for s in ("asked late", "handed out")] == [late, 4.0 - late]
    assert [spent[s] for s in ("at the client", "in hand")] == [1.0, 2.0]
    assert sum(spent.values()) == found["all"]["p50_ms"] == 23 - committed_ms


def test_a_message_without_stamps_is_told(tmp_path: Path) -> None:
    write_stamps(tmp_path, 9)
    rows = Rows(*(np.array([each]) for each in (7, 230, 3, 21 * MS, 23 * MS)))
    with pytest.raises(ValueError, match="no stamp 'asked'"):
        moments(rows, np.array([8 * MS]), stamps_in(tmp_path))


def test_this_process_takes_cpu() -> None:
    before = cores.taken({"me": [os.getpid()]})
    sum(range(2_000_000))
    found = cores.a_second(before, cores.taken({"me": [os.getpid()]}), 1.0)
    assert found["me"]["cpu_ms"] > 5
