"""Rights of a user of MySQL or MariaDB, by the text of SHOW GRANTS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ray_canal.sinks.schema_follower import TableName

_NAME = r"(?:`(?:[^`]|``)*`|\*)"
_GRANT = re.compile(rf"GRANT (?P<rights>.+?) ON (?P<database>{_NAME})\.(?P<table>{_NAME}) TO ")
_CREATE = ("CREATE",)
_ALL = {"ALL PRIVILEGES", "ALL"}
_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_CHANGES = ("CREATE", "ALTER", "DROP")


class Need(NamedTuple):
    """A table that a mirror writes: whether it is there, and whether DDL changes it."""

    name: TableName
    exists: bool
    changes: bool


def missing_rights(grants: Iterable[str], needs: Sequence[Need], user: str) -> list[str]:
    """Return the GRANT statements that would give what lacks, one for each database."""
    known = [match for text in grants if (match := _GRANT.match(text))]
    missing: dict[str, set[str]] = {}
    for need in needs:
        given = _rights_on(known, need.name)
        wanted = {*_ROWS, *(_CHANGES if need.changes else ()), *(() if need.exists else _CREATE)}
        if not given & _ALL and (lacking := wanted - given):
            missing.setdefault(need.name.database, set()).update(lacking)
    every = (*_ROWS, *_CHANGES)
    return [
        f"GRANT {', '.join(right for right in every if right in lacking)} ON"
        f" `{database.replace('`', '``')}`.* TO {user}"
        for database, lacking in missing.items()
    ]


def _rights_on(grants: Iterable[re.Match[str]], name: TableName) -> set[str]:
    rights: set[str] = set()
    for grant in grants:
        database, table = grant["database"], _plain(grant["table"])
        if database != "*" and not _like(_plain(database)).fullmatch(name.database):
            continue
        if table in ("*", name.table):
            rights.update(each.strip().upper() for each in grant["rights"].split(","))
    return rights


def _plain(name: str) -> str:
    return name if name == "*" else name[1:-1].replace("``", "`")


def _like(pattern: str) -> re.Pattern[str]:
    """Return the names that a database's pattern stands for: `%` and `_`, unless escaped."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    texts = {"%": ".*", "_": "."}
    found = (texts.get(each) or re.escape(each.removeprefix("\\") or each) for each in parts)
    return re.compile("".join(found), re.DOTALL | re.IGNORECASE)
