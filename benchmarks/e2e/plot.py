"""The plot of throughput, as an SVG by hand: a bar for each reader, logarithmic, by workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.e2e.figures import Figure

_BAR, _GAP, _LEFT, _WIDTH, _TOP = 16, 5, 210, 460, 34
_OURS, _CEILING, _PEER = "#1a7f5a", "#9aa0a6", "#4c78a8"
_GREY = "#666"


def svg(figures: Sequence[Figure], caption: str) -> str:
    """A picture of the medians. Raises ValueError: no figures."""
    # Room for the shortest bar.
    least = 10 ** math.floor(math.log10(min(f.rows_per_s for f in figures)) - 0.2)
    most = max(f.rows_per_s for f in figures)
    decades = math.log10(most / least)

    def x(rows_per_s: float) -> float:
        return round(_LEFT + _WIDTH * math.log10(max(rows_per_s, least) / least) / decades, 1)

    parts: list[str] = []
    y = _TOP
    for workload in dict.fromkeys(f.workload for f in figures):
        parts.append(_text(8, y + 12, workload, weight="bold"))
        y += 20
        for f in sorted(
            (f for f in figures if f.workload == workload), key=lambda f: -f.rows_per_s
        ):
            colour = _colour(f.reader)
            parts.append(_text(_LEFT - 8, y + 12, f.reader, anchor="end"))
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{x(f.rows_per_s) - _LEFT:.1f}" '
                f'height="{_BAR}" fill="{colour}"/>'
            )
            parts.append(_text(x(f.rows_per_s) + 6, y + 12, f"{f.rows_per_s:,.0f}"))
            y += _BAR + _GAP
        y += 10
    for power in range(math.ceil(math.log10(least)), math.floor(math.log10(most)) + 1):
        at = x(10**power)
        parts.insert(
            0, f'<line x1="{at}" y1="{_TOP}" x2="{at}" y2="{y}" stroke="#ddd" stroke-width="1"/>'
        )
        parts.append(_text(at, y + 12, f"{10**power:,}", anchor="middle", colour=_GREY))
    width, height = _LEFT + _WIDTH + 90, y + 22
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            _text(8, 18, caption, colour=_GREY),
            *parts,
            "</svg>\n",
        )
    )


def _colour(reader: str) -> str:
    if reader.startswith("ray_canal"):
        return _OURS
    return _CEILING if reader.startswith("mysqlbinlog") else _PEER


def _text(
    x: float, y: float, text: str, anchor: str = "start", weight: str = "", colour: str = "#222"
) -> str:
    more = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}"{more}>{escape(text)}</text>'
    )
