"""Look up a place that a person names in a log: a file's offset, a GTID set, a time, its ends.

For looking (`ray-canal position`) and for moving a subscriber (`seek`). What a text means is pure;
`log_of` opens the log of a destination's source, and `locate` searches it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ray_canal.binlog.executed import gtid_set_after
from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.config.times import iso_time
from ray_canal.errors import ConfigError, ConnectionLost, PositionNotFound, PositionPurged
from ray_canal.model.gtid import GtidSet, MariadbGtid
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity, utc_text
from ray_canal.model.quantities import size_text
from ray_canal.source.binlog_files import list_binlogs
from ray_canal.source.catalog import Catalog
from ray_canal.source.start.decision import configured_start
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.log_file import MICROS, Log, transactions
from ray_canal.source.start.search import Search
from ray_canal.source.start.server_log import log_of_server

EARLIEST, LATEST = "earliest", "latest"
_OFFSET = re.compile(r"(?P<name>[^:,\s]+\.[^:,\s]+):(?P<position>\d+)\Z")
_SINGLE_MYSQL = re.compile(r"[0-9a-f-]{36}(:[a-z_]\w*)?:\d+\Z")


def parse_place(text: str) -> dict[str, Any]:
    """Return the keys of `[instance.source]` that start at a place: FILE:POSITION, a time with its
    zone, a GTID set (of what was consumed already), `earliest` or `latest`. Raises ConfigError."""
    text = text.strip()
    if text in (EARLIEST, LATEST):
        return {"start": text}
    offset = _OFFSET.match(text)
    if offset is not None:
        name, position = offset["name"], int(offset["position"])
        return {"start": "position", "journal_name": name, "position": position}
    if re.match(r"\d{4}-\d\d-\d\d[T ]", text):
        return {"start": "timestamp", "timestamp": _time(text).isoformat()}
    for kind in (GtidSet, MariadbGtid) if text else ():
        with contextlib.suppress(ConfigError):
            return {"start": "gtid", "gtid_set": str(kind.parse(text))}
    raise ConfigError(
        f"{text!r} is no place in a log; expected FILE:POSITION (mysql-bin.000012:4711), a time "
        "with its zone (2026-10-01T08:00:00Z), a GTID set of what was consumed already, "
        f"{EARLIEST} or {LATEST}"
    )


def _time(text: str) -> dt.datetime:
    """Return a time that has its zone. Raises ConfigError."""
    try:
        time = iso_time(text)
    except ValueError:
        time = dt.datetime.min
    if time.tzinfo is None:
        raise ConfigError(f"time {text!r}: expected one with its zone, as 2026-10-01T08:00:00Z")
    return time


@dataclass(frozen=True, slots=True)
class Located:
    """A place in a log. `place`: where a transaction begins, or the log ends, with what was
    executed before it. `inside_entries`: so many entries of that transaction lie before the offset
    that was asked for; `is_event`: an event begins there. `gtid`, `commit_us`: of the transaction
    that begins at `place`, empty and 0 at the log's end or where the log has none. `before_s`:
    header time of the last event before. `first`, `end`: the log's oldest file, and where it ends;
    `bytes_to_end`: how much lies behind the place."""

    identity: SourceIdentity
    place: EntryPosition
    gtid: str = ""
    commit_us: int = 0
    is_event: bool = True
    inside_entries: int = 0
    before_s: int = 0
    first: str = ""
    end: str = ""
    bytes_to_end: int = 0

    @property
    def cursor(self) -> LogPosition:
        """Return the place as a subscriber's cursor."""
        return LogPosition(self.identity, self.place)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for programs."""
        tree = asdict(self)
        del tree["identity"], tree["place"]
        return {
            "journal_name": self.place.journal_name,
            "position": self.place.position,
            "address": self.identity.address,
            "server": self.identity.server_uuid,
            "gtids_before": self.place.gtid,
            **tree,
        }


@contextlib.contextmanager
def log_of(config: InstanceConfig) -> Iterator[Log]:
    """Return the log of a destination's source: of its files, or of the first of its servers that
    answers. Raises SourceError kinds."""
    source = config.source
    if source.files:
        paths = [Path(each).absolute() for each in source.files]
        yield FilesLog(list_binlogs(tuple(paths)), source.skipped_places, source.on_undecodable)
        return
    here, catalog = _first_that_answers(source)
    with contextlib.closing(catalog), log_of_server(here, catalog) as log:
        yield log


def _first_that_answers(source: SourceConfig) -> tuple[SourceConfig, Catalog]:
    """Return the first server that answers. Raises the last one's error, if none can be used."""
    for address in source.addresses:
        here = source.at(address)
        catalog = Catalog(here)
        try:
            catalog.server_uuid()
        except ConnectionLost:
            catalog.close()
            if address == source.addresses[-1]:
                raise
        else:
            return here, catalog
    raise ConfigError("the destination has no server to read from")


def locate(source: SourceConfig, log: Log, text: str, *, looking: bool = True) -> Located:
    """Return what a log has at a place. `looking`: also what begins there, and one GTID of MySQL
    (uuid:5) is that transaction; else it is a set as any (uuid:1-5), of what was consumed already.
    Raises ConfigError: no place; PositionPurged, PositionNotFound: not in this log; SourceError
    and DecodeError kinds."""
    wanted = parse_place(text)
    search = Search(log)
    offset = int(wanted["position"]) if wanted["start"] == "position" else 0
    place = (
        _one(log, search, str(wanted["gtid_set"]))
        if looking and _is_single(text)
        else _place(source, log, search, wanted)
    )
    files = log.files()
    end = search.end()
    names = [name for name, _ in files]
    here = names.index(place.journal_name)
    left = sum(size for _, size in files[here:]) - place.position
    found = Located(
        log.identity, place, first=files[0][0], end=str(end),
        bytes_to_end=max(0, left),
    )  # fmt: skip
    return _with_surroundings(log, search, found, offset or place.position) if looking else found


def cursor_at(config: InstanceConfig, text: str) -> LogPosition:
    """Return a place in the log of a destination's source as a subscriber's cursor. A place inside
    a transaction is that transaction's beginning. Raises as `locate`."""
    with log_of(config) as log:
        found = locate(config.source, log, text, looking=False)
        name, position = found.place.journal_name, found.place.position
        if _OFFSET.match(text.strip()) and not Search(log).surroundings(name, position).is_event:
            raise PositionNotFound(
                f"no event begins at offset {position} of {name}; `ray-canal position CONFIG NAME "
                f"{name}:{position}` shows what is around it"
            ).at(name, position)
        return found.cursor


def _is_single(text: str) -> bool:
    return _SINGLE_MYSQL.match(text.strip().lower()) is not None


def _one(log: Log, search: Search, gtid: str) -> EntryPosition:
    """Return where the transaction with this GTID begins. Raises PositionNotFound."""
    found = search.one(gtid)
    if found is None:
        raise PositionNotFound(
            f"the log of {log.identity.address}, {files_text(log)}, does not have {gtid}: it was "
            "purged, or has not been executed there"
        )
    return found


def _place(
    source: SourceConfig, log: Log, search: Search, wanted: dict[str, Any]
) -> EntryPosition:
    config = source.model_copy(update={"on_purged": "fail", **wanted})
    try:
        place = configured_start(config, log)
    except ConfigError as error:
        if wanted["start"] != "gtid":
            raise
        raise ConfigError(
            f"{wanted['gtid_set']!r} is no set of GTIDs as {log.identity.address} has them (MySQL: "
            "UUID:1-5, MariaDB: 0-1-5); a time is given with its zone, as 2026-10-01T08:00:00Z"
        ) from error
    if place.journal_name:
        return place
    found = search.gtids(place.gtid)  # the server would find the file
    if found is None:
        raise PositionPurged(
            f"the log of {log.identity.address} begins at {files_text(log)}: transactions that are "
            f"not in {place.gtid} lie before that"
        )
    return found


def files_text(log: Log) -> str:
    """Return the log's files for people: the oldest … the newest."""
    names = [name for name, _ in log.files()]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _with_surroundings(log: Log, search: Search, found: Located, offset: int) -> Located:
    name, place = found.place.journal_name, found.place.position
    around = search.surroundings(name, offset)
    inside = around.entries if offset > place else 0
    found = replace(
        found, is_event=around.is_event, inside_entries=inside, before_s=around.before_s
    )
    for some in transactions(log, name):
        match = np.flatnonzero(some.position == place)
        if len(match):
            index = int(match[0])
            gtid = gtid_set_after("", some.gtids[index : index + 1]) if len(some.gtids) else ""
            return replace(found, gtid=gtid, commit_us=int(some.time_us[index]))
    return found


def told(found: Located, asked: str) -> list[str]:
    """Return lines about a place for people."""
    identity, place = found.identity, found.place
    server = f" (server {identity.server_uuid})" if identity.server_uuid else ""
    lines = [f"{asked}: {place} in the log of {identity.address}{server}"]
    if not found.is_event:
        lines.append("no event begins at that offset; its transaction begins at the place above")
    elif found.inside_entries:
        lines.append(f"that offset is inside its transaction, after {found.inside_entries} entries")
    if found.commit_us:
        name = f" {found.gtid}" if found.gtid else ""
        seconds, micros = divmod(found.commit_us, MICROS)
        exact = f" and {micros} µs" if micros else ""
        lines.append(f"transaction{name} of {utc_text(seconds)}{exact} begins there")
    elif found.bytes_to_end:
        lines.append("a file begins there; its first transaction comes after what heads it")
    else:
        lines.append("no transaction begins there yet: it is the end of the log")
    if found.before_s:
        lines.append(f"the event before is of {utc_text(found.before_s)}")
    if place.gtid:
        lines.append(f"executed before: {place.gtid}")
    size = size_text(found.bytes_to_end)
    lines.append(f"the log: {found.first} … {found.end}, {size} from that place on")
    return lines
