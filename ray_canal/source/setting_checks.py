"""Check a server's settings for change data capture, with what to run to fix them. Pure: a
server's answers in, results out. `checks.py` asks the server."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ray_canal.config import InstanceConfig
from ray_canal.source.membership import in_galera

_RETENTION_S_MIN = 24 * 3600
_SKEW_S_MAX = 5.0
_NAMED = 5


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check. `fix` says what to run or set; `advisory`: it works without, but less well."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    advisory: bool = False


def listed(names: Iterable[object]) -> str:
    """Return the first of some names, and how many more there are."""
    every = [str(name) for name in names]
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts that a server told. `variables`: global variables by name. `taken_ids`: server ids of
    its registered replicas. `zone_s`: how far its clock's zone is east of UTC; `ahead_s`: how far
    its clock is before ours. `logged_only`, `not_logged`: databases that its binlog is limited to,
    or lacks."""

    version: str
    variables: Mapping[str, str]
    retention_s: float = 0.0
    taken_ids: frozenset[int] = frozenset()
    zone_s: int = 0
    ahead_s: float = 0.0
    logged_only: str = ""
    not_logged: str = ""

    @property
    def is_mariadb(self) -> bool:
        """Return whether the server is a MariaDB."""
        return "mariadb" in self.version.lower()

    def value(self, name: str) -> str:
        """A variable in upper case; empty where the server does not know it."""
        return self.variables.get(name, "").upper()

    def set(self, name: str, value: str) -> str:
        """The statement that sets a variable, for good where the server can do that."""
        major = self.version.split(".")[0]
        if not self.is_mariadb and major.isdigit() and int(major) >= 8:
            return f"SET PERSIST {name} = {value}"
        return f"SET GLOBAL {name} = {value}, and {name} = {value.strip(chr(39))} in its my.cnf"


def check_settings(config: InstanceConfig, server: ServerFacts) -> list[CheckResult]:
    """Return all checks of settings."""
    return [
        *_binlog(server),
        *_gtids(config, server),
        _retention(server),
        *_server_ids(config, server),
        *_clock(config, server),
    ]


def statements_advice(log_format: str) -> str:
    """Return what a log in another format than ROW lacks."""
    some = "every change is" if log_format == "STATEMENT" else "some changes are"
    return (
        f"binlog_format is {log_format}: {some} written as a statement, which comes as an entry "
        "with its SQL and without rows, and is in no Arrow batch"
    )


def _binlog(server: ServerFacts) -> Iterator[CheckResult]:
    log_on = server.value("log_bin") in ("ON", "1")
    fix = "" if log_on else "start the server with --log-bin"
    yield CheckResult("log_bin", log_on, server.value("log_bin"), fix)
    log_format = server.value("binlog_format") or "ROW"
    ok = log_format == "ROW"
    fix = server.set("binlog_format", "'ROW'") + "; then let the applications reconnect"
    fix += f" ({statements_advice(log_format)})"
    yield CheckResult("binlog_format", ok, log_format, "" if ok else fix, advisory=True)
    for name, good, otherwise in (
        ("binlog_row_image", "FULL", "before and after images lack columns"),
        ("binlog_row_metadata", "FULL", "column names come from the table meta history"),
        ("binlog_checksum", "CRC32", "damaged bytes are not noticed"),
    ):
        found = server.value(name)
        if found:
            ok = found == good
            fix = "" if ok else f"{server.set(name, repr(good))} (else {otherwise})"
            yield CheckResult(name, ok, found, fix, advisory=True)
        elif name != "binlog_row_image":  # servers without it log whole rows
            yield CheckResult(name, False, "not known to this server", otherwise, advisory=True)
    if server.logged_only or server.not_logged:
        detail = f"only {server.logged_only}" if server.logged_only else f"not {server.not_logged}"
        fix = "remove binlog-do-db and binlog-ignore-db, or capture nothing of other databases"
        yield CheckResult("databases in the binlog", False, detail, fix, advisory=True)


def _gtids(config: InstanceConfig, server: ServerFacts) -> Iterator[CheckResult]:
    needed = config.source.gtid or config.source.start == "gtid"
    if not server.is_mariadb:
        mode = server.value("gtid_mode") or "OFF"
        ok = mode == "ON"
        fix = (
            "SET GLOBAL enforce_gtid_consistency = ON; then gtid_mode OFF_PERMISSIVE, "
            "ON_PERMISSIVE, ON, one after the other"
        )
        fix += "" if needed else " (a destination can then move to another server exactly)"
        yield CheckResult("gtid_mode", ok, mode, "" if ok else fix, advisory=not needed)
    is_node = in_galera(server.variables)
    if not (config.source.standby or is_node):
        return
    names = ("log_replica_updates", "log_slave_updates")
    name = next((each for each in names if server.value(each)), names[1])
    ok = server.value(name) in ("ON", "1")
    fix = "" if ok else f"{name} = ON in its my.cnf: else it logs nothing of what it replicates"
    yield CheckResult(name, ok, server.value(name) or "OFF", fix, advisory=not is_node)


def _retention(server: ServerFacts) -> CheckResult:
    hours = server.retention_s / 3600
    if not server.retention_s:
        return CheckResult("binlog retention", True, "binlogs are not purged by age")
    ok = server.retention_s >= _RETENTION_S_MIN
    by_seconds = bool(server.value("binlog_expire_logs_seconds"))
    week = ("binlog_expire_logs_seconds", "604800") if by_seconds else ("expire_logs_days", "7")
    fix = f"{server.set(*week)}: a cursor whose file is purged cannot resume"
    return CheckResult("binlog retention", ok, f"{hours:g} h", "" if ok else fix, advisory=True)


def _server_ids(config: InstanceConfig, server: ServerFacts) -> Iterator[CheckResult]:
    number = server.value("server_id")
    ok = number not in ("", "0")
    fix = server.set("server_id", "1") + " (a server with id 0 refuses replicas)"
    yield CheckResult("server_id", ok, number, "" if ok else fix)
    ours = config.source.server_id
    if not ours:
        yield CheckResult("source.server_id", True, "0: one that is free is chosen")
        return
    own = str(ours) == number
    taken = own or ours in server.taken_ids
    whose = "the server's own" if own else "a replica's (which may be this destination, running)"
    detail = f"{ours} is {whose}" if taken else f"{ours} is free"
    fix = "source.server_id = 0, or a number that no other replica has" if taken else ""
    yield CheckResult("source.server_id", not taken, detail, fix, advisory=not own)


def _clock(config: InstanceConfig, server: ServerFacts) -> Iterator[CheckResult]:
    name = config.time_zone
    offset = dt.datetime.now(zoneinfo.ZoneInfo(name)).utcoffset() or dt.timedelta()
    ok = offset == dt.timedelta(seconds=server.zone_s)
    detail = f"entries print TIMESTAMP in {name}, the server's zone is {_offset(server.zone_s)}"
    fix = "" if ok else "instance.time_zone, if clients of Canal's entries expect the server's"
    yield CheckResult("time_zone", ok, detail, fix, advisory=True)
    ok = abs(server.ahead_s) <= _SKEW_S_MAX
    detail = f"the server's clock is {abs(server.ahead_s):.1f} s "
    detail += "ahead of ours" if server.ahead_s > 0 else "behind ours"
    fix = "" if ok else "set both by NTP: lag, and starts by time, are off by so much"
    yield CheckResult("clock", ok, detail, fix, advisory=True)


def _offset(seconds: int) -> str:
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{abs(seconds) // 3600:02d}:{abs(seconds) // 60 % 60:02d}"
