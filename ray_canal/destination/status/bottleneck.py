"""The stage that limits a destination, and the subscriber that is furthest behind, by its status.

Pure functions over the plain values that `status` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray_canal.model.metrics import value_at

_BUSY_PERCENT = 70.0
"""A stage that works for so much of the time limits the others, also where nothing is behind."""
_IDLE_PERCENT = 20.0
"""Where no stage works for so much of the time, none of them limits."""
_MOSTLY_PERCENT = 50.0
_MOST_OF = 2 / 3
_READING_STAGES = ("fetch", "parse", "decode")


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The stage that limits a destination: `source` while there is nothing more to read, `server`
    while the server sends less than could be read, `subscribers` while the log is full. `percent`:
    how busy the stage is (of decoders: or for how much of the time the fetcher was held back by
    them), 0 for those three."""

    stage: str
    percent: float = 0.0


def bottleneck(status: Mapping[str, Any]) -> Bottleneck | None:
    """Return what limits a running destination; None: it does not run, or nothing is known."""
    if status.get("state") != "running":
        return None
    if value_at(status, "store.full_s", 0.0) or _waits(status, "store"):
        return Bottleneck("subscribers")
    lag_bytes = status.get("lag_bytes")
    if lag_bytes and _waits(status, "fetch"):
        return Bottleneck("server")
    stage, percent = max(_busy(status).items(), key=lambda item: item[1])
    # With something to read, whatever works most is the limit: a machine without a free CPU keeps
    # all of them from working all the time.
    if percent >= (_IDLE_PERCENT if lag_bytes else _BUSY_PERCENT):
        return Bottleneck(stage, min(percent, 100.0))
    if lag_bytes is None:
        return None
    return Bottleneck("server" if lag_bytes else "source")


def _waits(status: Mapping[str, Any], stage: str) -> bool:
    """Return whether a stage has waited most of the last seconds."""
    return float(value_at(status, f"stages.{stage}.waiting_percent", 0.0)) >= _MOSTLY_PERCENT


def _busy(status: Mapping[str, Any]) -> dict[str, float]:
    """Return how busy each stage is, in percent of what it can do."""
    busy = {
        name: float(times["busy_percent"]) for name, times in (status.get("stages") or {}).items()
    }
    decoders = int(status.get("decoders") or 0)
    if decoders:
        # Decode tasks that wait for a CPU do not work, and hold the fetcher back all the same.
        held_back = float(status.get("held_back_percent") or 0.0)
        busy["decode"] = max(busy.get("decode", 0.0) / decoders, held_back)
        return busy
    # One process does these three: it has the name of what most of its work is.
    apart = {name: busy.pop(name, 0.0) for name in _READING_STAGES}
    together, most = sum(apart.values()), max(apart, key=lambda name: apart[name])
    is_most = apart[most] >= _MOST_OF * together > 0
    busy[most if is_most else "+".join(_READING_STAGES)] = together
    return busy


def slowest(status: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the client id and place of the subscriber that is furthest behind; None: there is
    none. One that cannot be served comes before all others."""
    places = value_at(status, "store.subscribers", {})
    if not places:
        return None

    def rank(item: tuple[str, Mapping[str, Any]]) -> tuple[bool, bool, int]:
        place = item[1]
        catching_up = bool(place.get("detached"))
        return bool(place.get("failure")), catching_up, place.get("bytes_behind") or 0

    ranked: tuple[str, Mapping[str, Any]] = max(places.items(), key=rank)
    return ranked
