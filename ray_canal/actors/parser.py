"""The parser actor: walks a raw chunk's headers and resolves its tables. No state but caches."""

from __future__ import annotations

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.config import InstanceConfig
from ray_canal.parse.event_parser import EventParser


def event_parser(config: InstanceConfig) -> EventParser:
    """The EventParser of a destination: row metadata, then the given CREATE TABLEs, then the
    catalog."""
    from pathlib import Path

    from ray_canal.driver.catalog import Catalog
    from ray_canal.errors import ConfigError
    from ray_canal.parse.schemas import SchemaRegistry

    source = config.source
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
    table = catalog.table if catalog else None
    return EventParser(SchemaRegistry(sql, table, hidden_key=hidden_key))


class Parser:
    """One destination's parser. Chunks may come in any order (each carries what it depends on)."""

    def __init__(self, instance_json: str) -> None:
        self._parser = event_parser(InstanceConfig.model_validate_json(instance_json))

    def parse(self, raw: RawChunk) -> ParsedChunk:
        """Walk one chunk. Raises CanalError only when nothing of it could be used."""
        return self._parser.parse(raw)
