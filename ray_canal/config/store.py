"""[instance.store], [instance.tsdb] and [meta]: the log, the schema history, the cursors."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ray_canal.config.section import FilePath, SecretText, Section, TlsConfig, host_port_of


class StoreConfig(Section):
    """The ring buffer (canal.instance.memory.*). Capacity is buffer_size × memunit_bytes under
    MEMSIZE, buffer_size entries under ITEMSIZE. The disk takes `spill_bytes` more for subscribers
    that may spill, in the folder `spill_path`."""

    batch_mode: Literal["MEMSIZE", "ITEMSIZE"] = "MEMSIZE"
    buffer_size: int = Field(default=131072, ge=2)
    memunit_bytes: int = Field(default=1024, ge=1)
    ddl_isolation: bool = False
    # Entries of an open transaction that are held back.
    transaction_size: int = Field(default=1024, ge=0)
    thin_empty_transactions: bool = True
    # Of subscribers that do not say.
    policy: Literal["block", "spill", "detach"] = "block"
    transactions: bool = False
    spill_bytes: int = Field(default=4 << 30, ge=0)
    spill_path: FilePath = ""
    # Who made no call for so long is given up: the log does not wait for it. 0: nobody is.
    subscriber_expire_hours: float = Field(default=0.0, ge=0)

    @property
    def capacity_bytes(self) -> int:
        """Return the capacity of the log in memory, in bytes; about so much where it counts
        entries."""
        return self.buffer_size * self.memunit_bytes

    @model_validator(mode="after")
    def _power_of_two(self) -> StoreConfig:
        if self.buffer_size & (self.buffer_size - 1):
            raise ValueError(f"store.buffer_size must be a power of two, not {self.buffer_size}")
        return self


class TsdbConfig(Section):
    """The table meta history (canal.instance.tsdb.*): schemas by place in the log.

    `path` empty: next to the cursors' file. `on_ddl_error` says what happens to a table that a DDL
    left without a known schema: `catalog` reads it again where that is provably right, else stops;
    `quarantine` does so too, else keeps the table's events aside, compressed, in up to
    `quarantine_bytes_max`, then stops; `stop` stops at once. What no cursor needs is forgotten when
    it is `snapshot_expire_hours` old, or there are more than `records_max`.
    """

    enable: bool = True
    path: FilePath = ""
    snapshot_interval_hours: float = Field(default=24.0, ge=0)
    snapshot_expire_hours: float = Field(default=360.0, gt=0)
    records_max: int = Field(default=50_000, ge=100)
    on_ddl_error: Literal["catalog", "quarantine", "stop"] = "catalog"
    quarantine_bytes_max: int = Field(default=256 << 20, gt=0)


MYSQL_TABLES = ("canal_epoch", "canal_cursor", "canal_schema", "canal_quarantined")
"""Where cursors live in MySQL, schemas lie next to them (meta/mysql.py, meta/schema_mysql.py)."""


class MetaConfig(Section):
    """Settings of [meta]: where cursors are kept. `path` is a file on a disk that survives the head
    node's restart; the rest is for servers. `database`: MySQL's database, or what Redis's keys
    begin with. `shared`: `path` is on a disk that all nodes share, with locks that hold."""

    backend: Literal["sqlite", "memory", "mysql", "redis"] = "sqlite"
    path: FilePath = "meta.db"
    shared: bool = False
    address: str = ""
    username: str = ""
    password: SecretText = ""
    database: str = Field(default="ray_canal", pattern=r"^[A-Za-z0-9_$\-]{1,64}$")
    timeout_s: float = Field(default=3.0, gt=0)
    tls: TlsConfig = TlsConfig()

    @model_validator(mode="after")
    def _reachable(self) -> MetaConfig:
        if self.is_server and not self.address:
            raise ValueError(f'backend = "{self.backend}" needs `address`, host:port')
        return self

    @property
    def is_server(self) -> bool:
        """Return whether it is a server, which every node reaches; else it is of one machine."""
        return self.backend in ("mysql", "redis")

    @property
    def own_tables(self) -> str:
        """A list for `filter.black_tables` with the tables that we write ourselves; empty: none.

        A destination that saw them would never come to rest: each ack is a change, which is
        delivered and acked. So they are hidden from every destination, wherever the server is:
        that it is the source, a standby, or what one of them replicates, no address tells."""
        if self.backend != "mysql":
            return ""
        database = self.database.replace("-", r"\-")
        return ",".join(rf"{database}\.{table}" for table in MYSQL_TABLES)

    def host_port(self, default_port: int) -> tuple[str, int]:
        """Return host and port of `address`. Raises ConfigError."""
        return host_port_of(self.address, default_port, "meta.address")
