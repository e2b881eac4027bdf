"""Durations and sizes as people read them."""

from __future__ import annotations

_DURATIONS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def duration_text(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least two: `0.4 s`, `12 s`, `3.5
    min`, `2.0 d`."""
    for unit_s, name in _DURATIONS:
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.1f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"


def size_text(size_bytes: float) -> str:
    """Return a size in its largest decimal unit: `0 B`, `12 kB`, `3.4 GB`."""
    for unit, name in _SIZES:
        if size_bytes >= unit:
            number = size_bytes / unit
            return f"{number:.0f} {name}" if number >= 100 else f"{number:.1f} {name}"
    return f"{size_bytes:.0f} B"


def rate_text(per_second: float) -> str:
    """Return a rate without its unit, rounded to what matters: `0.3`, `12,345`."""
    return f"{per_second:,.0f}" if per_second >= 10 or not per_second else f"{per_second:.1f}"
