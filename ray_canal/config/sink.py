"""[[sink]]: what is written to a queue, a database or a file as it changes."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from ray_canal.config.queue import (
    ROW_FORMATS,
    KafkaConfig,
    MessageConfig,
    RabbitConfig,
    RocketConfig,
    RoutingConfig,
)
from ray_canal.config.secret import secret
from ray_canal.config.section import FilePath, SecretText, Section, TlsConfig
from ray_canal.errors import ConfigError
from ray_canal.filter import TableFilter

SinkType = Literal[
    "kafka", "rabbitmq", "rocketmq", "mysql", "postgres", "delta", "iceberg", "duckdb", "jsonl",
    "python",
]  # fmt: skip
_DATABASES = ("mysql", "postgres", "duckdb")
_LAKES = ("delta", "iceberg")
_BATCH_SIZE, _LAKE_BATCH_SIZE = 8192, 131_072
_QUEUES = ("kafka", "rabbitmq", "rocketmq")
MirrorOrder = Literal["transaction", "table", "key"]
SchemaChangePolicy = Literal["evolve", "add", "ignore", "stop"]
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_TABLE_NAME = re.compile(r"(?:[^{}]|\{schema\}|\{table\})*\{table\}(?:[^{}]|\{schema\}|\{table\})*")


class TablePolicy(Section):
    """How a target's tables are named and made.

    `database` and `table` name a source's table there. `schema_change`: "evolve" makes, changes,
    renames and drops columns and tables as the source does; "add" makes tables and columns, renames
    and empties tables, and never drops any; "ignore" changes nothing; "stop" ends the sink at a
    change. `without_key`: "stop" at a table without a primary key; "rows" finds rows by all their
    values; "ignore" leaves such tables out.
    """

    database: str = "{schema}"
    table: str = "{table}"
    create_tables: bool = True
    schema_change: SchemaChangePolicy = "add"
    without_key: Literal["stop", "rows", "ignore"] = "stop"

    @property
    def section(self) -> str:
        """Name of the section in canal.toml."""
        return type(self).__name__.removesuffix("Config").lower()

    def setting(self, key: str) -> str:
        """Return what a setting of these is called where it is given."""
        return f"{self.section}.{key}" if self.section else key

    @model_validator(mode="after")
    def _names(self) -> TablePolicy:
        if not _TABLE_NAME.fullmatch(self.table):
            raise ValueError(
                f"{self.setting('table')} {self.table!r}: a name with {{table}}, and {{schema}}, "
                "in it"
            )
        return self


class MirrorConfig(TablePolicy):
    """A database that follows the source. In PostgreSQL, `database` is a schema of the database
    `dbname`. `order`: "transaction": commits hold whole transactions, one after the other; "table",
    "key": rows of a table, or of a key, keep their order, and `senders` connections write at
    once."""

    address: str = ""
    username: str = ""
    password: SecretText = ""
    tls: TlsConfig = TlsConfig()
    dbname: str = "postgres"
    cursor_database: str = "ray_canal"
    timeout_s: float = Field(default=60.0, gt=0)
    order: MirrorOrder = "transaction"
    senders: int = Field(default=1, ge=1, le=64)

    @model_validator(mode="after")
    def _senders(self) -> MirrorConfig:
        if self.senders > 1 and self.order == "transaction":
            raise ValueError(
                f"mirror.senders = {self.senders}: one connection alone keeps the order of "
                'transactions; with mirror.order "table" or "key" several write at once'
            )
        return self


class LakeConfig(TablePolicy):
    """Tables of a lake: of Delta below `path`, each in a folder `database`/`table`; of Iceberg in a
    catalog. `mode`: "upsert": the rows as they are; "append": every change. `options` are those of
    the object store, or of the catalog. `writers`: how many write the files of one table's commit
    at once."""

    path: FilePath = ""
    mode: Literal["upsert", "append"] = "upsert"
    options: dict[str, SecretText] = Field(default={})
    threads: int = Field(default=4, ge=1)
    writers: int = Field(default=1, ge=1, le=1024)

    def resolved_options(self) -> dict[str, str]:
        """Return the options with their secrets. `file://…` is an address. Raises ConfigError."""
        return {
            key: value if str.__str__(value).startswith("file://") else secret(value)
            for key, value in self.options.items()
        }

    @model_validator(mode="after")
    def _keys(self) -> LakeConfig:
        if self.without_key == "rows":
            name = self.setting("without_key")
            raise ValueError(f'{name}: "rows" is not for lakes: "stop" or "ignore"')
        return self


class SinkConfig(Section):
    """One sink: which destination's changes go to which target."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.\-]+$")
    destination: str
    type: SinkType
    client_id: int = Field(ge=0)
    tables: str = r".*\..*"
    policy: Literal["", "block", "spill", "detach"] = ""
    transactions: bool | None = None
    start: Literal["head", "tail"] = "head"
    batch_size: int = Field(0, ge=0)
    commit_interval_s: float = Field(0.0, ge=0)
    transform: str = ""
    target: str = ""
    path: FilePath = ""
    dead_letters: FilePath = ""
    retry_max_s: float = Field(30.0, gt=0)
    give_up_after_s: float = Field(0.0, ge=0)
    mirror: MirrorConfig = MirrorConfig()
    lake: LakeConfig = LakeConfig()
    kafka: KafkaConfig = KafkaConfig()
    rabbitmq: RabbitConfig = RabbitConfig()
    rocketmq: RocketConfig = RocketConfig()
    message: MessageConfig = MessageConfig()
    routing: RoutingConfig = RoutingConfig()
    options: dict[str, str] = Field(default={})

    @property
    def whole_transactions(self) -> bool:
        """Return whether each commit holds whole transactions: by default in databases."""
        return self.type in _DATABASES if self.transactions is None else self.transactions

    @property
    def commit_units(self) -> int:
        """Most of a commit, in memory units or entries of the log."""
        return self.batch_size or (_LAKE_BATCH_SIZE if self.type in _LAKES else _BATCH_SIZE)

    @model_validator(mode="after")
    def _complete(self) -> SinkConfig:
        try:
            TableFilter(self.tables, "")
        except ConfigError as error:
            raise ValueError(f"sink {self.name}: tables: {error}") from None
        for key in ("transform", "target"):
            text = getattr(self, key)
            if text and not _FUNCTION.fullmatch(text):
                raise ValueError(f'sink {self.name}: {key} {text!r}: expected "module:name"')
        brokers = str(self.kafka.properties.get("bootstrap.servers", ""))
        mirror, lake_type = self.mirror.address, self.lake.options.get("type", "")
        key, value = {
            "mysql": ("mirror.address", mirror),
            "postgres": ("mirror.address", mirror),
            "duckdb": ("path", self.path),
            "delta": ("lake.path", self.lake.path),
            "iceberg": ("lake.options.type", str(lake_type)),
            "jsonl": ("path", self.path),
            "python": ("target", self.target),
            "kafka": ('kafka.properties."bootstrap.servers"', brokers),
            "rabbitmq": ("rabbitmq.address", self.rabbitmq.address),
            "rocketmq": ("rocketmq.address", self.rocketmq.address),
        }[self.type]
        if not value:
            raise ValueError(f'sink {self.name}: type "{self.type}" needs `{key}`')
        if self.type == "duckdb" and self.mirror.senders > 1:
            raise ValueError(f"sink {self.name}: one connection alone writes a DuckDB file")
        self._check_message()
        return self

    def _check_message(self) -> None:
        """Raises ValueError: the messages' format does not go with the other keys."""
        form = self.message.format or ("flat" if self.type in _QUEUES else "")
        made = f'sink {self.name}: message.format "{form}"'
        if self.transform and form in ("flat", "protobuf"):
            raise ValueError(
                f"{made} is made without Arrow batches, which a transform changes: use one of "
                f"{', '.join((*ROW_FORMATS, 'arrow'))}"
            )
        if self.routing.key_changes == "split" and form in ("protobuf", "arrow"):
            raise ValueError(f'{made} does not take routing.key_changes = "split": "flat" does')
        if self.type == "jsonl" and form in ("protobuf", "arrow", "avro"):
            raise ValueError(f'{made} is no JSON: type "jsonl" has "flat", "debezium" or none')
        if form not in ROW_FORMATS:
            return
        # What is the default was not given: on its way to a process every key is written out.
        default = RoutingConfig(topic=self.routing.topic)
        given = [key for key, value in self.routing if value != getattr(default, key)]
        if given:
            raise ValueError(
                f"{made} has a topic for each table, routing.topic.SCHEMA.TABLE, and partitions by "
                f"key: take out routing.{', routing.'.join(sorted(given))}"
            )
        for key in ("routing_key", "stream"):
            if "{partition}" in getattr(self.rabbitmq, key):
                raise ValueError(f"{made} has no partitions for rabbitmq.{key}")
