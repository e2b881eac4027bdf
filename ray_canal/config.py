"""The configuration of a deployment: one TOML file, typed, unknown keys refused.

`docs/canal.toml` shows every key with its default; a test keeps the two in step. Secrets may be
given as `env:NAME` or `file:PATH` and are read when used, never stored in a status or a log.
"""

from __future__ import annotations

import datetime as dt
import difflib
import os
import re
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ray_canal.errors import ConfigError
from ray_canal.filter import EventFilter, FieldFilter, TableFilter

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsConfig(_Section):
    """TLS to the server. `mode` has MySQL's meanings of --ssl-mode."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca: str = ""
    cert: str = ""
    key: str = ""


class SourceConfig(_Section):
    """Where events come from: a live server (`address`) or local binlog files (`files`)."""

    address: str = ""
    standby: tuple[str, ...] = ()  # other servers with the same data, to go on at
    files: tuple[str, ...] = ()
    follow: bool = False
    schema_sql: str = ""  # file with CREATE TABLE statements, for binlogs without row metadata
    username: str = ""
    password: str = ""
    server_id: int = Field(0, ge=0, le=2**32 - 1)  # 0: chosen so that it does not collide
    gtid: bool = False
    # Where a destination without any cursor starts.
    start: Literal["latest", "earliest", "position", "gtid", "timestamp"] = "latest"
    journal_name: str = ""
    position: int = Field(4, ge=4)
    gtid_set: str = ""
    timestamp: str = ""  # ISO 8601 with a zone, to the microsecond; or Canal's milliseconds
    # What to do where the server has purged what we need.
    on_purged: Literal["fail", "earliest", "latest"] = "fail"
    # Warn when the retention may take the oldest cursor's file sooner than this.
    purge_warning_hours: float = Field(2.0, ge=0)
    # Without GTIDs: how far before the last event to start on another server.
    fallback_s: float = Field(60.0, ge=0)
    # With standbys: what is asked of the server, how often, and after how many failures in a row
    # it is left.
    detect_sql: str = "SELECT 1"
    detect_interval_s: float = Field(3.0, gt=0)
    detect_failures: int = Field(3, ge=1)
    heartbeat_s: float = Field(5.0, gt=0)
    read_timeout_s: float = Field(15.0, gt=0)
    connect_timeout_s: float = Field(10.0, gt=0)
    reconnect_max_s: float = Field(20.0, gt=0)
    semi_sync: bool = False
    # The BIGINT key that the server adds to keyless tables; "auto": Alibaba RDS's and PolarDB-X's.
    hidden_key: str = "auto"
    receive_buffer_bytes: int = Field(4 << 20, ge=64 << 10)
    event_bytes_max: int = Field((1 << 30) + (1 << 20), ge=1 << 20)
    tls: TlsConfig = TlsConfig()

    @model_validator(mode="after")
    def _one_source(self) -> SourceConfig:
        if bool(self.address) == bool(self.files):
            raise ValueError("give either `address` (a server) or `files` (binlog files)")
        if self.standby and not self.address:
            raise ValueError("`standby` needs `address`, the server that is read first")
        if len(set(self.addresses)) != len(self.addresses):
            raise ValueError(f"`address` and `standby` name a server twice: {self.addresses}")
        if self.start == "position" and not self.journal_name:
            raise ValueError('start = "position" needs `journal_name` (and `position`)')
        if self.start == "gtid" and not self.gtid_set:
            raise ValueError('start = "gtid" needs `gtid_set`')
        if self.start == "timestamp" or self.timestamp:
            _ = self.start_time_us
        return self

    @property
    def start_time_us(self) -> int:
        """`timestamp` in microseconds since the epoch. Raises ValueError."""
        text = self.timestamp.strip()
        if text.isdigit():
            return int(text) * 1000
        try:  # Python 3.10 does not take Z
            time = dt.datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text))
        except ValueError:
            raise ValueError(
                f'timestamp {text!r}: expected "2026-10-01T08:00:00.123456+00:00" or milliseconds'
            ) from None
        if time.tzinfo is None:
            raise ValueError(f"timestamp {text!r} has no zone: add Z or +08:00")
        return (time - _EPOCH) // dt.timedelta(microseconds=1)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers to read from, the preferred one first; none for files."""
        return (self.address, *self.standby) if self.address else ()

    def at(self, address: str) -> SourceConfig:
        """The same, with the server at this address before the others."""
        others = tuple(each for each in self.addresses if each != address)
        standby = others if address in self.addresses else self.standby
        return self.model_copy(update={"address": address, "standby": standby})

    @property
    def host_port(self) -> tuple[str, int]:
        return _host_port(self.address, 3306, "source.address")


class FilterConfig(_Section):
    """What passes (canal.instance.filter.*): tables in Canal's regex grammar, columns, kinds."""

    tables: str = r".*\..*"
    black_tables: str = r"mysql\.slave_.*"
    # Columns, `schema.table:column/column,…` (canal.instance.filter.field / .black.field).
    fields: str = ""
    black_fields: str = ""
    # Each drops; Canal's names with an underscore for the dot.
    query_dcl: bool = False
    query_dml: bool = False
    query_ddl: bool = False
    dml_insert: bool = False
    dml_update: bool = False
    dml_delete: bool = False
    rows: bool = False
    transaction_entry: bool = False
    table_error: bool = False

    @model_validator(mode="after")
    def _grammar(self) -> FilterConfig:
        TableFilter(self.tables, self.black_tables)
        FieldFilter(self.fields, self.black_fields)
        return self

    def changed(self, changes: dict[str, Any]) -> FilterConfig:
        """It with some keys of other values. Raises ConfigError."""
        try:
            return FilterConfig.model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            raise ConfigError(f"instance.filter: {_explained(error)}") from None

    def event_filter(self) -> EventFilter:
        """What is dropped before rows are decoded; all but `transaction_entry`."""
        return EventFilter(
            TableFilter(self.tables, self.black_tables),
            query_dcl=self.query_dcl,
            query_dml=self.query_dml,
            query_ddl=self.query_ddl,
            rows=self.rows,
            dml_insert=self.dml_insert,
            dml_update=self.dml_update,
            dml_delete=self.dml_delete,
            table_error=self.table_error,
        )


class StoreConfig(_Section):
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
    spill_path: str = ""

    @model_validator(mode="after")
    def _power_of_two(self) -> StoreConfig:
        if self.buffer_size & (self.buffer_size - 1):
            raise ValueError(f"store.buffer_size must be a power of two, not {self.buffer_size}")
        return self


class MetaConfig(_Section):
    """Where cursors live. `path` is a file on a disk that survives the head node's restart; the
    rest is for servers. `database`: MySQL's database, or what Redis's keys begin with."""

    backend: Literal["sqlite", "memory", "mysql", "redis"] = "sqlite"
    path: str = "meta.db"
    address: str = ""
    username: str = ""
    password: str = ""
    database: str = Field(default="ray_canal", pattern=r"^[A-Za-z0-9_$\-]{1,64}$")
    timeout_s: float = Field(default=3.0, gt=0)
    tls: TlsConfig = TlsConfig()

    @model_validator(mode="after")
    def _reachable(self) -> MetaConfig:
        if self.backend in ("mysql", "redis") and not self.address:
            raise ValueError(f'backend = "{self.backend}" needs `address`, host:port')
        return self

    def host_port(self, default_port: int) -> tuple[str, int]:
        return _host_port(self.address, default_port, "meta.address")


class ServerTlsConfig(_Section):
    """TLS on the server's port: PEM files. With `ca`, clients must show a certificate of it."""

    cert: str = ""
    key: str = ""
    ca: str = ""


class ServerConfig(_Section):
    """Canal's TCP protocol for all destinations of the cluster. Without this section, no port is
    opened."""

    host: str = "0.0.0.0"
    port: int = Field(11111, ge=0, le=65535)
    replicas: int = Field(1, ge=1, le=64)
    username: str = ""
    password: str = ""
    password_hash: str = ""  # in place of `password`: hex of SHA1(SHA1(password)), as canal.passwd
    login_timeout_s: float = Field(10.0, gt=0)
    idle_timeout_s: float = Field(3600.0, gt=0)
    stall_timeout_s: float = Field(60.0, gt=0)
    connections_max: int = Field(4096, ge=1)
    logins_max: int = Field(1024, ge=1)
    requests_max: int = Field(100, ge=1)
    packet_bytes_max: int = Field(1 << 20, ge=1 << 10)
    buffer_bytes_max: int = Field(256 << 20, ge=1 << 20)
    tls: ServerTlsConfig = ServerTlsConfig()

    @model_validator(mode="after")
    def _one_password(self) -> ServerConfig:
        if self.password and self.password_hash:
            raise ValueError("give `password` or `password_hash`, not both")
        if self.username and not (self.password or self.password_hash):
            raise ValueError("a `username` without a password lets everybody in; give a password")
        if (self.tls.key or self.tls.ca) and not self.tls.cert:
            raise ValueError("tls needs `cert`, a PEM file of the server's certificate")
        return self


class RayConfig(_Section):
    """How to reach Ray. `address` empty: the running cluster, else a local one.

    `destinations_per_process` 0: each destination has a process for its log and one for its
    upstream; else so many share one process with both. "auto": 1 on up to 4 CPUs, 0 on more, and as
    many as make one process a CPU where there are more destinations than CPUs.
    """

    address: str = ""
    namespace: str = "ray_canal"
    spare: bool = True  # keep a process ready, so that a destination comes back sooner
    destinations_per_process: Literal["auto"] | int = "auto"

    @model_validator(mode="after")
    def _share(self) -> RayConfig:
        share = self.destinations_per_process
        if isinstance(share, int) and share < 0:
            raise ValueError("destinations_per_process must be 0, a positive number, or 'auto'")
        return self


class TsdbConfig(_Section):
    """The table meta history (canal.instance.tsdb.*): schemas by place in the log.

    `path` empty: beside the cursors' file. `on_ddl_error` says what happens to a table that a DDL
    left without a known schema: `catalog` reads it anew where that is provably right, else stops;
    `quarantine` does so too, else keeps the table's events aside, compressed, in up to
    `quarantine_bytes_max`, then stops; `stop` stops at once.
    """

    enable: bool = True
    path: str = ""
    snapshot_interval_hours: float = Field(default=24.0, ge=0)
    snapshot_expire_hours: float = Field(default=360.0, gt=0)
    on_ddl_error: Literal["catalog", "quarantine", "stop"] = "catalog"
    quarantine_bytes_max: int = Field(default=256 << 20, gt=0)


_CHUNK_BYTES_MIN = 4 << 10


class InstanceConfig(_Section):
    """One destination: a source, its pipeline and its log. Where `chunk_bytes` is not given, it is
    at most a quarter of a log that counts bytes."""

    destination: str = Field(pattern=r"^[A-Za-z0-9_.\-]+$")
    source: SourceConfig
    filter: FilterConfig = FilterConfig()
    store: StoreConfig = StoreConfig()
    tsdb: TsdbConfig = TsdbConfig()
    decoders: Literal["auto"] | int = "auto"
    chunk_bytes: int = Field(24 << 20, ge=_CHUNK_BYTES_MIN)
    linger_ms: float = Field(5.0, ge=0)
    decode_timeout_s: float = Field(120.0, gt=0)
    time_zone: str = "UTC"  # in which entries print TIMESTAMP
    runs: Literal["always", "once_subscribed", "while_subscribed"] = "always"
    irregular_dates: Literal["null", "error"] = "null"  # in Arrow: 0000-00-00, 2026-02-31

    def at(self, address: str) -> InstanceConfig:
        """The same, reading from the server at this address; of files: the same."""
        if not self.source.address:
            return self
        return self.model_copy(update={"source": self.source.at(address)})

    @model_validator(mode="after")
    def _chunks_fit_the_log(self) -> InstanceConfig:
        store = self.store
        if "chunk_bytes" not in self.model_fields_set and store.batch_mode == "MEMSIZE":
            quarter = max(store.buffer_size * store.memunit_bytes // 4, _CHUNK_BYTES_MIN)
            object.__setattr__(self, "chunk_bytes", min(self.chunk_bytes, quarter))  # frozen
        return self

    @model_validator(mode="after")
    def _decoders_positive(self) -> InstanceConfig:
        if isinstance(self.decoders, int) and self.decoders < 0:
            raise ValueError("decoders must be 0 (fused), a positive number, or 'auto'")
        return self


class CanalConfig(_Section):
    """A deployment: its destinations, where cursors live, how to reach Ray."""

    instance: tuple[InstanceConfig, ...]
    meta: MetaConfig = MetaConfig()
    ray: RayConfig = RayConfig()
    server: ServerConfig | None = None

    @model_validator(mode="after")
    def _unique(self) -> CanalConfig:
        names = [i.destination for i in self.instance]
        if len(set(names)) != len(names):
            raise ValueError(f"destinations must be unique, got {names}")
        given: dict[int, str] = {}
        for instance in self.instance:
            server_id = instance.source.server_id
            if server_id and given.setdefault(server_id, instance.destination) != (
                instance.destination
            ):
                raise ValueError(
                    f"source.server_id {server_id} is given to {given[server_id]} and to "
                    f"{instance.destination}: a server ends the dump of the one when the other "
                    "comes; give each its own, or 0"
                )
        if self.meta.backend == "mysql":
            self._refuse_own_echo()
        return self

    def _refuse_own_echo(self) -> None:
        """A destination that sees its own cursors' table would never come to rest: each ack is a
        change, which is delivered and acked."""
        database = self.meta.database
        for instance in self.instance:
            where = instance.filter
            seen = TableFilter(where.tables, where.black_tables)
            if instance.source.address == self.meta.address and seen.admits(
                database, "canal_cursor"
            ):
                raise ValueError(
                    f"destination {instance.destination} would see its own cursors as changes: "
                    rf"add {database}\..* to its filter.black_tables, or keep the meta tables on "
                    "another server"
                )

    def destination(self, name: str) -> InstanceConfig:
        for instance in self.instance:
            if instance.destination == name:
                return instance
        raise ConfigError(
            f"no destination {name!r} in the configuration; it has "
            f"{', '.join(i.destination for i in self.instance)}"
        )


def load(config: str | os.PathLike[str] | dict[str, Any] | CanalConfig) -> CanalConfig:
    """Read a configuration from a TOML file, a dict, or pass a CanalConfig through.

    Relative paths in a file are taken from the file's directory. Raises ConfigError: file missing
    or not TOML; unknown key (with the nearest valid one); a value out of its range.
    """
    if isinstance(config, CanalConfig):
        return config
    if isinstance(config, dict):
        return _validate(config, "configuration")
    path = Path(config)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    _resolve_paths(tree, path.resolve().parent)
    return _validate(tree, str(path))


def secret(value: str) -> str:
    """The secret behind `env:NAME` or `file:PATH`, or the value itself.

    Raises ConfigError: the variable is not set, the file cannot be read. The secret is in no
    message.
    """
    scheme, _, rest = value.partition(":")
    if scheme == "env":
        if rest not in os.environ:
            raise ConfigError(f"environment variable {rest} (named by {value!r}) is not set")
        return os.environ[rest]
    if scheme == "file":
        try:
            return Path(rest).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigError(f"cannot read secret file {rest}: {error.strerror}") from error
    return value


def _host_port(address: str, default_port: int, key: str) -> tuple[str, int]:
    """Raises ConfigError."""
    host, _, port = address.rpartition(":")
    if not host:
        return address.strip("[]"), default_port
    if not port.isdigit():
        raise ConfigError(f"{key} {address!r}: expected host:port")
    return host.strip("[]"), int(port)


def _resolve_paths(tree: dict[str, Any], base: Path) -> None:
    meta = tree.get("meta")
    if isinstance(meta, dict) and isinstance(meta.get("path"), str):
        meta["path"] = str(base / meta["path"])
    server = tree.get("server")
    tls = server.get("tls") if isinstance(server, dict) else None
    if isinstance(tls, dict):
        tls.update({key: str(base / name) for key, name in tls.items() if name})
    for instance in tree.get("instance", []):
        source = instance.get("source") if isinstance(instance, dict) else None
        if isinstance(source, dict):
            if isinstance(source.get("files"), list):
                source["files"] = [str(base / name) for name in source["files"]]
            if isinstance(source.get("schema_sql"), str) and source["schema_sql"]:
                source["schema_sql"] = str(base / source["schema_sql"])
        tsdb = instance.get("tsdb") if isinstance(instance, dict) else None
        if isinstance(tsdb, dict) and isinstance(tsdb.get("path"), str) and tsdb["path"]:
            tsdb["path"] = str(base / tsdb["path"])


def _validate(tree: dict[str, Any], origin: str) -> CanalConfig:
    try:
        return CanalConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_explained(error)}") from None


def _explained(error: ValidationError) -> str:
    return "; ".join(_explain(e) for e in error.errors(include_input=False, include_url=False))


def _explain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        near = difflib.get_close_matches(key, _all_keys(CanalConfig), n=1)
        return f"unknown key {where!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    return f"{where or 'configuration'}: {problem['msg'].removeprefix('Value error, ')}"


def _all_keys(section: type[BaseModel]) -> list[str]:
    keys: list[str] = []
    for name, info in section.model_fields.items():
        keys.append(name)
        for candidate in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                keys.extend(_all_keys(candidate))
    return keys
