"""GTID sets as text, of either kind: MySQL's sets (`uuid:1-5`) and MariaDB's positions (`0-1-5`: of
each domain the last server and sequence number). Empty: nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ray_canal.model.gtid import GtidSet, MariadbGtid


def missing_gtids(wanted: str, have: str) -> str:
    """Return what of one GTID set (or MariaDB position) the other lacks; empty: nothing."""
    if not wanted:
        return ""
    if not is_mysql_set(wanted):
        position = MariadbGtid.parse(have if not is_mysql_set(have) else "")
        return ",".join(
            part for part in wanted.split(",") if not MariadbGtid.parse(part).issubset(position)
        )
    return str(GtidSet.parse(wanted).subtract(GtidSet.parse(have)))


def unknown_gtids(wanted: str, known: str) -> str:
    """Return what of a cursor's GTIDs a server never had (Log.known_gtids). A sequence number of
    MariaDB means something only together with the server that gave it."""
    if not wanted or is_mysql_set(wanted):
        return missing_gtids(wanted, known if is_mysql_set(known) else "")
    newest: dict[tuple[str, str], int] = {}
    for part in filter(None, [] if is_mysql_set(known) else known.split(",")):
        domain, server, sequence = part.strip().split("-")
        newest[domain, server] = max(int(sequence), newest.get((domain, server), 0))
    return ",".join(
        f"{domain}-{server}-{sequence}"
        for domain, server, sequence in (part.split("-") for part in wanted.split(","))
        if newest.get((domain, server), 0) < int(sequence)
    )


def is_mysql_set(text: str) -> bool:
    """Return whether it is MySQL's form, `uuid:1-5`, and not MariaDB's, `0-1-5`."""
    return ":" in text


def union(one: str, other: str) -> str:
    """Return what is in either; of MariaDB, the farther place of each domain."""
    if not one or not other:
        return one or other
    if is_mysql_set(one):
        return str(GtidSet.parse(one).union(GtidSet.parse(other)))
    return _domains((one, other), farthest=True)


def common(sets: Sequence[str]) -> str:
    """Return what is in all of them; of MariaDB, the nearest place of each domain that all have."""
    if not all(sets):
        return ""
    if not is_mysql_set(sets[0]):
        return _domains(sets, farthest=False)
    first = GtidSet.parse(sets[0])
    lacking = GtidSet()
    for other in sets[1:]:
        lacking.update(first.subtract(GtidSet.parse(other)))
    return str(first.subtract(lacking))


def _domains(positions: Sequence[str], *, farthest: bool) -> str:
    found: dict[int, list[tuple[int, int]]] = {}
    for position in positions:
        for part in position.split(","):
            domain, server_id, sequence = map(int, part.split("-"))
            found.setdefault(domain, []).append((sequence, server_id))
    chosen = MariadbGtid()
    for domain, places in found.items():
        if farthest or len(places) == len(positions):
            sequence, server_id = max(places) if farthest else min(places)
            chosen.add(domain, server_id, sequence)
    return str(chosen)
