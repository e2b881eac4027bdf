"""Makes a destination's EventParser as configured, and begins it where reading starts."""

from __future__ import annotations

from collections.abc import Sequence

from ray_canal.config import InstanceConfig
from ray_canal.model.position import LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import Start
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.event_parser import EventParser


def event_parser(config: InstanceConfig) -> EventParser:
    """The EventParser of a destination: row metadata, then the given CREATE TABLEs, else the schema
    history, else (tsdb.enable = false) the catalog."""
    from pathlib import Path

    from ray_canal.errors import ConfigError
    from ray_canal.malloc import keep_freed_memory
    from ray_canal.schema.keeper import SchemaKeeper
    from ray_canal.schema.names import Names
    from ray_canal.schema.records import with_period
    from ray_canal.schema.registry import SchemaRegistry
    from ray_canal.source.catalog import Catalog
    from ray_canal.source.catalog_tables import CatalogTables

    keep_freed_memory()
    source, tsdb = config.source, config.tsdb
    sql = ""
    if source.schema_sql:
        try:
            sql = Path(source.schema_sql).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"cannot read source.schema_sql {source.schema_sql}: {error.strerror}"
            ) from error
    catalog = Catalog(source) if source.address else None
    named = "" if source.hidden_key == "auto" else source.hidden_key
    hidden_key = catalog.hidden_key if catalog and source.hidden_key == "auto" else lambda: named
    tables = CatalogTables(source) if source.address else None

    def now(schema: str, table: str) -> TableMeta | None:
        found = tables.table_now(schema, table).tables if tables else ()
        return with_period(found[0]).meta if found else None

    def names() -> Names:
        return Names(catalog.lower_case_table_names() if catalog else source.names_setting)

    schemas = SchemaRegistry(sql, now if tables else None, hidden_key=hidden_key)
    keeper = None
    if tsdb.enable and not sql:
        given = Names(source.names_setting)
        keeper = SchemaKeeper(tables, tsdb.on_ddl_error, tsdb.snapshot_interval_hours, given)
    return EventParser(schemas, keeper, config.filter.event_filter(), names)


def begin(
    parser: EventParser,
    cursors: Sequence[LogPosition],
    records: Records,
    start: Start,
    identity: SourceIdentity,
) -> Records:
    """Stand where reading starts; `records` are known of schemas. Returns new ones. See
    EventParser.begin."""
    server = identity.server_uuid or identity.address
    # Else statements may lie unread before the position.
    before = [each.position for each in cursors if not each.is_foreign(identity)]
    continues = start.position in before
    return parser.begin(
        records, server, start.position, continues, before=before, other_log=start.other_log
    )
