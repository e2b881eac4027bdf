"""Values as people read them on a page: sizes, durations, sparklines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_POINTS_MAX = 16
WIDTH, HEIGHT = 45, 16


def size(value: float | None) -> str:
    """Return bytes as `1.5 MiB`; an en dash for what is not known."""
    if value is None:
        return "–"
    unit = 0
    while abs(value) >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_SIZES[unit]}"


def duration(seconds: float | None) -> str:
    """Return seconds as `0.2 s`, `12 s`, `5 min`, `3 h`, `4 d`."""
    if seconds is None:
        return "–"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def count(value: float | None) -> str:
    """Return a number as `950`, `12.3 k`, `6.1 M`."""
    if value is None:
        return "–"
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor * 10 or (abs(value) >= factor and factor > 1e3):
            return f"{value / factor:.1f} {unit}"
    return f"{value:,.0f}"


def clock(at: float | None) -> str:
    """Return a moment (seconds since the epoch) as `2026-11-24 03:04:05Z`."""
    if not at:
        return "–"
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def sparkline(values: Sequence[float | None]) -> str:
    """Return an SVG path of the last hour's values, their maximum at the top; "" where fewer than
    two are known. Its steps are relative and whole: a page has hundreds of them."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    means = [sum(part) / len(part) for part in _groups(known, -(-len(known) // _POINTS_MAX))]
    top = max(means) or 1.0
    heights = [round(HEIGHT - 1 - max(value, 0.0) / top * (HEIGHT - 2)) for value in means]
    step = WIDTH // max(len(means) - 1, 1)
    moves = [f"{step} {now - before}" for before, now in pairwise(heights)]
    return f"M0 {heights[0]}l" + " ".join(moves).replace(" -", "-")


def _groups(values: list[float], length: int) -> list[list[float]]:
    return [values[i : i + length] for i in range(0, len(values), length)]


FILTERS: dict[str, Any] = {
    "size": size,
    "duration": duration,
    "count": count,
    "clock": clock,
    "sparkline": sparkline,
}
