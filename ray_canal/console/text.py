"""Values as people read them on a page: sizes, durations, sparklines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from markupsafe import Markup, escape

from ray_canal.model.quantities import duration_text, size_text

_POINTS_MAX = 16
WIDTH, HEIGHT = 45, 16


def size(value: float | None) -> str:
    """Return bytes as `1.5 MB`; an en dash for what is not known."""
    return "–" if value is None else size_text(value)


def duration(seconds: float | None) -> str:
    """Return seconds as `0.2 s`, `12 s`, `3.5 min`."""
    return "–" if seconds is None else duration_text(seconds)


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


def moment(at: float | None) -> str:
    """Return the time of day of a moment, as `03:04:05Z`."""
    return clock(at).rpartition(" ")[2]


def code(text: str) -> Markup:
    """Return a text in which what stands between backticks is code."""
    parts = str(escape(text)).split("`")
    return Markup("".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts)))


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
    "moment": moment,
    "code": code,
    "sparkline": sparkline,
}
