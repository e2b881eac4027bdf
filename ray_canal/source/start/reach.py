"""Measure how far cursors are from each other, and choose which of them one start serves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ray_canal.model.position import EntryPosition, journal_key


def too_far_behind(
    places: Sequence[EntryPosition | None],
    files: Sequence[tuple[str, int]],
    reach_bytes: int | None,
    *,
    one_name: bool = False,
) -> tuple[int, ...]:
    """Return, for each place, its distance in bytes to the newest one if that exceeds
    `reach_bytes`, else 0. `files`: the log's (name, size), oldest first; a place in none of them
    (or None) has no distance. `one_name`: a place in files of an older base name (log_bin) than the
    newest one's is too far, too."""
    offsets: dict[str, int] = {}
    total = 0
    for name, size in files:
        offsets[name] = total
        total += size
    at = [
        offsets[place.journal_name] + place.position
        if place is not None and place.journal_name in offsets
        else None
        for place in places
    ]
    newest = max((place for place in at if place is not None), default=0)
    reach = newest if reach_bytes is None else reach_bytes
    if one_name:
        reach = min(reach, newest - _beginning_of_name(files, offsets, newest))
    return tuple(
        newest - place if place is not None and newest - place > reach else 0 for place in at
    )


def _beginning_of_name(
    files: Sequence[tuple[str, int]], offsets: dict[str, int], newest: int
) -> int:
    """Return where the files begin that have one base name, up to the one with this offset."""
    begin, base = 0, ""
    for name, _ in files:
        if offsets[name] > newest:
            break
        if journal_key(name)[0] != base:
            begin, base = offsets[name], journal_key(name)[0]
    return begin


def lowest_of(places: Sequence[EntryPosition], files: Sequence[tuple[str, int]]) -> EntryPosition:
    """Return the place that the log comes to first. `files`: in the log's order, whatever their
    base names are."""
    order = {name: number for number, (name, _) in enumerate(files)}

    def key(place: EntryPosition) -> tuple[int, ...]:
        (_, number), *inside = place.key()
        return order.get(place.journal_name, -1), number, *inside

    return min(places, key=key)
