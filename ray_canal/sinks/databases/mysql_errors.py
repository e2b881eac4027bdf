"""Errors of a MySQL or MariaDB target: again, an entry, a table, or the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from pymysql.err import DataError, IntegrityError, MySQLError

from ray_canal.sinks.port import Kind, SinkError

_RETRY = {
    1205, 1206, 1213, 1317, 1053, 1040, 1203, 1226, 1290, 1792, 1836, 1927, 1969, 2006, 2013, 2055,
    3024, 3100, 3101, 3572, 4031, 1047, 1180, 1021, 1026, 1030, 1037, 1038, 1041, 1114, 1135,
    1020, 1412, 1874, 1881, 3032, 3989,
}  # fmt: skip
"""Lock waits and deadlocks, rows and tables that another transaction has changed meanwhile, servers
and schemas that stop or are read-only for a while, lost connections, groups and Galera nodes that
are not ready, disks that are full, too little memory."""
_SYSTEM_MAX = 999
"""The greatest number of an error that the system gave the server: 3 is that a file cannot be
written."""
_POISON = {
    1048, 1062, 1264, 1265, 1292, 1366, 1369, 1406, 1416, 1526, 1644, 1690, 1748, 3140, 3643, 3819,
    4025,
}  # fmt: skip
"""Values that a column does not take, checks of a table, a view or a trigger, rows that no
partition has room for."""
_SCHEMA = {
    1054, 1071, 1118, 1146, 1171, 1064, 1074, 1101, 1049, 1059, 1067, 1103, 1113, 1115, 1117, 1163,
    1170, 1253, 1273, 1288, 1347, 1364, 1471, 1828, 1829, 1832, 1833, 1906, 3105, 3750, 3780, 3959,
    4078, 4079,
}  # fmt: skip
_CHANGED = {1050, 1054, 1060, 1091, 1146}
_ADVICE = dict.fromkeys(
    (1071, 1170), "; make the table there, with a key on the same parts of columns as the source's"
)
"""The key is too long, or needs a length."""
_TIMED_OUT = "; if the server needs longer for it, raise mirror.timeout_s"


def translated(error: MySQLError, sql: str | bytes) -> SinkError:
    """Return a server's error as one of a sink."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[-1]) if error.args else type(error).__name__
    kind: Kind = "fatal"
    if number in _RETRY or number <= _SYSTEM_MAX:
        kind = "retry"
    elif number in _POISON or isinstance(error, DataError | IntegrityError):
        kind = "poison"
    elif number in _SCHEMA:
        kind = "schema"
    advice = _ADVICE.get(number, "")
    told = sql if isinstance(sql, str) else sql[:120].decode("utf-8", "replace")
    advice += _TIMED_OUT if number == 2013 and "timed out" in text else ""
    return SinkError(f"target: {text} ({number}), at {told[:120]}{advice}", kind)


@contextlib.contextmanager
def of_changed_table(
    columns: Callable[[], Iterable[str]] = tuple,
    needed: Iterable[str] = (),
    free: Iterable[str] = (),
) -> Iterator[None]:
    """Raise "retry" where a table is not as it was found right before: a statement of a run that
    was given up, and which the server went on with, has changed it. "schema" where its `columns`
    still have the `needed` ones and none of the `free` names (a CHECK of MariaDB's that needs a
    column says that there is none), or where its values do not fit, which are no entry's fault."""
    try:
        yield
    except SinkError as error:
        cause = error.__cause__
        if isinstance(cause, MySQLError) and cause.args[0] in _CHANGED:
            there = _folded(columns())
            is_as_found = there and there >= _folded(needed) and not there & _folded(free)
            raise SinkError(str(error), "schema" if is_as_found else "retry") from None
        if error.kind == "poison":
            raise SinkError(str(error), "schema") from None
        raise


def _folded(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}
