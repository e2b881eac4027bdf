"""Canal's cursors, tied to the server that they are of: a file's name and an offset mean something
in one server's log only. The server is asked who it is, and its log whether the event that Canal's
client acked last begins there."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence

from ray_canal.config import SourceConfig
from ray_canal.config.section import host_port_of
from ray_canal.errors import CanalError, ConfigError
from ray_canal.model.position import LogPosition, SourceIdentity
from ray_canal.source.catalog import Catalog
from ray_canal.source.gtid_sets import unknown_gtids
from ray_canal.source.start.own_log import own_place
from ray_canal.source.start.search import Search
from ray_canal.source.start.server_log import ServerLog, log_of_server

_UNCHECKED = "--unchecked writes them as they are: each is looked at when the destination starts"


def tied(
    source: SourceConfig, cursors: Sequence[LogPosition], server_uuid: str = ""
) -> list[LogPosition]:
    """Return the cursors of Canal with their server's identity, for which servers are asked, at the
    places where they go on there; those of files as they are. They are of the server at the address
    that they name or, if that is given, of the one with this `server_uuid`; then that may be
    another server than the source's, and they are moved from there at the start.

    Raises ConfigError: they are of another server, or nobody can tell, or their place is not in its
    log.
    """
    if source.files or not cursors:
        return list(cursors)
    uuids: dict[str, str] = {}
    away: list[CanalError] = []
    for address in source.addresses:
        try:
            uuids[address] = _uuid_at(source.at(address))
        except CanalError as error:
            away.append(error)
    found = []
    for cursor in cursors:
        its = cursor.identity.address
        if server_uuid:
            here = next((at for at, uuid in uuids.items() if uuid == server_uuid), "")
        else:
            here = next((at for at in uuids if _is_same(at, its)), "")
        if here:
            found.append(_at_its_place(source.at(here), cursor, uuids[here]))
        elif away:
            raise ConfigError(f"no server tells whose cursors these are: {away[0]}; {_UNCHECKED}")
        elif server_uuid:
            found.append(LogPosition(SourceIdentity(its, server_uuid), cursor.position))
        else:
            raise ConfigError(
                f"the cursors are of {its or 'an unnamed server'}, and the destination reads "
                f"{', '.join(source.addresses)}: a place in one server's log means nothing in "
                "another's. Say which server they are of, whatever its address is now: "
                "--server-uuid (SELECT @@server_uuid; of MariaDB: mariadb- and its server_id, of a "
                "Galera node also - and its wsrep_node_name). "
                f"{_UNCHECKED}"
            )
    return found


def _uuid_at(source: SourceConfig) -> str:
    with contextlib.closing(Catalog(source)) as catalog:
        return catalog.server_uuid()


def _at_its_place(source: SourceConfig, cursor: LogPosition, server_uuid: str) -> LogPosition:
    """Return the cursor at its place. Raises ConfigError: it is not in this server's log."""
    with _log_of(source) as log:
        gtid = cursor.position.gtid
        lacking = unknown_gtids(gtid, log.known_gtids()) if gtid else ""
        unnamed = LogPosition(SourceIdentity(cursor.identity.address), cursor.position)
        place = own_place(log, Search(log), unnamed, lacking)
    if place.position is None:
        raise ConfigError(
            f"the cursor at {cursor.position} is not in the log of {source.address}: {place.why}. "
            "Give the destination a source.start instead, or name the cursors' server: "
            "--server-uuid"
        )
    return LogPosition(SourceIdentity(source.address, server_uuid), place.position)


@contextlib.contextmanager
def _log_of(source: SourceConfig) -> Iterator[ServerLog]:
    with contextlib.closing(Catalog(source)) as catalog, log_of_server(source, catalog) as log:
        yield log


def _is_same(one: str, other: str) -> bool:
    """Return whether two addresses are one, by their text or by what they resolve to."""
    if not other:
        return False
    places = [host_port_of(each, 3306, "address") for each in (one, other)]
    if places[0][1] != places[1][1]:
        return False
    if places[0][0].lower() == places[1][0].lower():
        return True
    hosts = [_resolved(host) for host, _ in places]
    return bool(hosts[0] & hosts[1])


def _resolved(host: str) -> set[str]:
    with contextlib.suppress(OSError, UnicodeError):
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    return set()
