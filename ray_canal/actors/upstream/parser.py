"""The parser actor: walks a raw chunk's headers and resolves its tables. Its state, the schema
history, comes from the destination and goes back to it as records."""

from __future__ import annotations

from ray_canal.actors.log_settings import StageActor
from ray_canal.actors.priority import as_ray_itself
from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.config import InstanceConfig, kept_secrets
from ray_canal.destination.parsing import begin, event_parser
from ray_canal.model.position import LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import Start


class Parser(StageActor):
    """One destination's parser. Chunks come in the log's order, as one caller sends them."""

    def __init__(self, instance_json: str) -> None:
        as_ray_itself()
        self._parser = event_parser(InstanceConfig.model_validate_json(instance_json))

    def remember(self, told: dict[str, str]) -> None:
        """Take the secrets that the configuration refers to."""
        kept_secrets.remember(told)

    def begin(
        self,
        cursors: tuple[LogPosition, ...],
        records: Records,
        start: Start,
        identity: SourceIdentity,
    ) -> Records:
        """Give the parser its schemas; return new records. See destination/parsing.py."""
        return begin(self._parser, cursors, records, start, identity)

    def parse(self, raw: RawChunk) -> ParsedChunk:
        """Walk one chunk. Raises CanalError only when nothing of it could be used."""
        return self._parser.parse(raw)
