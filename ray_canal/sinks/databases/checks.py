"""A look at a mirror's target before a start: its login, rights and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ray_canal.config import MirrorConfig
from ray_canal.sinks.databases.port import Database
from ray_canal.sinks.databases.sender import refuse_another
from ray_canal.sinks.schema_follower import TableName, TargetTable
from ray_canal.sinks.target_checks import SourceTable, tables_check
from ray_canal.source.setting_checks import CheckResult, listed


def check_mirror(
    config: MirrorConfig,
    database: Database,
    tables: Mapping[TableName, SourceTable],
    sink: str,
    destination: str,
) -> Iterator[CheckResult]:
    """Yield connection, rights, then a result for each table. `tables`: those of the source by
    their names in the target. Raises SinkError: the target cannot be asked, or the sink's name is
    another's there."""
    if (unmade := database.unmade()) is not None:
        yield unmade
        return
    database.connect()
    try:
        yield CheckResult("connection", True, config.address or "opened")
        own = [TableName(config.cursor_database, name) for name in ("canal_cursor", "canal_table")]
        changes = config.schema_change in ("add", "evolve")
        missing = database.missing_rights([*own, *tables], changes)
        yield CheckResult("rights", not missing, listed(missing) or "given", "; ".join(missing[:3]))
        if not missing:
            refuse_another(sink, destination, database.place_of(sink))
            found = {name: database.find(name) for name in tables}
            yield from _check_tables(config, tables, found)
            if acting := [name for name in tables if found[name] and database.triggers(name)]:
                yield CheckResult(
                    "triggers", False, f"{listed(acting)}: they act on what the sink writes",
                    "drop those that the source has, too: the log has what they did", advisory=True,
                )  # fmt: skip
    finally:
        database.close()


def _check_tables(
    config: MirrorConfig,
    tables: Mapping[TableName, SourceTable],
    found: Mapping[TableName, TargetTable | None],
) -> Iterator[CheckResult]:
    absent = [name for name in tables if found[name] is None]
    makes = config.create_tables
    yield from tables_check("the target", tables, absent, makes, "mirror.create_tables")
    others = _other_keys(tables, found)
    if others:
        fix = "give them the source's primary key"
        yield CheckResult("keys", False, f"{listed(others)} have another primary key", fix)
    keyless = [f"{each.schema}.{each.table}" for each in tables.values() if not each.key]
    if keyless and config.without_key == "stop":
        yield CheckResult(
            "without a key", False, f"{listed(keyless)}: a change stops the sink",
            "give them one, leave them out of `tables`, or set mirror.without_key", advisory=True,
        )  # fmt: skip


def _other_keys(
    tables: Mapping[TableName, SourceTable], found: Mapping[TableName, TargetTable | None]
) -> Sequence[TableName]:
    return [
        name
        for name, source in tables.items()
        if (there := found[name]) is not None
        and there.key is not None
        and source.key
        and set(there.key) != {there.spelled(each) for each in source.key}
    ]
