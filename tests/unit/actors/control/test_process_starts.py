"""When a process ends often; what follows is in tests/integration/test_shared.py."""

from __future__ import annotations

from ray_canal.actors.control.process_starts import ENDS_MAX, WITHIN_S, are_often


def test_some_ends_within_minutes_are_often() -> None:
    assert not are_often([], 1000.0)
    few = [1000.0 + 10 * k for k in range(ENDS_MAX)]
    assert not are_often(few, 1100.0)
    assert are_often([*few, 1100.0], 1101.0)
    assert not are_often([*few, 1000.0 + WITHIN_S], 1001.0 + WITHIN_S)
    assert not are_often([*few, 1100.0], 900.0)  # the clock was put back: nothing is known
