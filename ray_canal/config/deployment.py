"""A deployment: its destinations, where cursors live, how to reach Ray."""

from __future__ import annotations

from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from ray_canal.config.console import ConsoleConfig
from ray_canal.config.filters import FilterConfig
from ray_canal.config.flight import FlightConfig
from ray_canal.config.log import LogConfig
from ray_canal.config.node import HEAD, NodeText
from ray_canal.config.notify import NotifyConfig
from ray_canal.config.section import Section
from ray_canal.config.server import ServerConfig
from ray_canal.config.sink import SinkConfig
from ray_canal.config.snapshot import SnapshotConfig
from ray_canal.config.source import SourceConfig
from ray_canal.config.store import MetaConfig, StoreConfig, TsdbConfig
from ray_canal.errors import ConfigError


class RayConfig(Section):
    """Settings of [ray]: how to reach the cluster. `address` empty: the running cluster, else a
    local one.

    `destinations_per_process` 0: each destination has a process for its log and one for its
    upstream; else so many share one process with both. "auto": 1 on up to 4 CPUs, 0 on more, and as
    many as make one process a CPU where there are more destinations than CPUs. `node` is for
    destinations that name none: see config/node.py. `standby`: several heads have this
    configuration, and one is active, which another one replaces when it has not said for `lease_s`
    that it is there. `stall_s`: an actor that answered before and does not for so long is killed,
    and Ray starts it again.
    """

    address: str = ""
    namespace: str = "ray_canal"
    spare: bool = True  # keep a process ready, so that a destination comes back sooner
    destinations_per_process: Literal["auto"] | int = "auto"
    node: NodeText = HEAD
    standby: bool = False
    lease_s: float = Field(default=5.0, ge=0.5)
    stall_s: float = Field(default=15.0, ge=1.0)

    @model_validator(mode="after")
    def _share(self) -> RayConfig:
        share = self.destinations_per_process
        if isinstance(share, int) and share < 0:
            raise ValueError("destinations_per_process must be 0, a positive number, or 'auto'")
        return self


_CHUNK_BYTES_MIN = 4 << 10


class InstanceConfig(Section):
    """One destination: a source, its pipeline and its log. Where `chunk_bytes` is not given, it is
    at most a quarter of a log that counts bytes."""

    destination: str = Field(pattern=r"^[A-Za-z0-9_.\-]+$")
    source: SourceConfig
    filter: FilterConfig = FilterConfig()
    store: StoreConfig = StoreConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    tsdb: TsdbConfig = TsdbConfig()
    node: NodeText = ""
    decoders: Literal["auto"] | int = "auto"
    decoders_min: int = Field(1, ge=1)
    chunk_bytes: int = Field(24 << 20, ge=_CHUNK_BYTES_MIN)
    linger_ms: float = Field(5.0, ge=0)
    decode_timeout_s: float = Field(120.0, gt=0)
    time_zone: str = "UTC"  # in which entries print TIMESTAMP
    runs: Literal["always", "once_subscribed", "while_subscribed"] = "always"
    irregular_dates: Literal["null", "error"] = "null"  # in Arrow: 0000-00-00, 2026-02-31

    def at(self, address: str) -> InstanceConfig:
        """Return this configuration for the server at `address`; unchanged where the source is
        files."""
        if not self.source.address:
            return self
        return self.model_copy(update={"source": self.source.at(address)})

    @property
    def rows_source(self) -> SourceConfig:
        """The server whose rows a snapshot reads: the source's, or a replica of it."""
        address = self.snapshot.address
        if not address:
            return self.source
        return self.source.model_copy(update={"address": address, "standby": ()})

    @model_validator(mode="after")
    def _a_name(self) -> InstanceConfig:
        if not self.destination.strip("."):
            raise ValueError(f"destination {self.destination!r}: dots alone are no name")
        return self

    @model_validator(mode="after")
    def _chunks_fit_the_log(self) -> InstanceConfig:
        store = self.store
        if "chunk_bytes" not in self.model_fields_set and store.batch_mode == "MEMSIZE":
            quarter = max(store.buffer_size * store.memunit_bytes // 4, _CHUNK_BYTES_MIN)
            object.__setattr__(self, "chunk_bytes", min(self.chunk_bytes, quarter))  # frozen
        return self

    @field_validator("time_zone")
    @classmethod
    def _zone_is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"time_zone {name!r}: no such zone; as Asia/Shanghai, or UTC"
            ) from None
        return name

    @model_validator(mode="after")
    def _signals_are_read(self) -> InstanceConfig:
        schema, _, table = self.snapshot.signal_table.partition(".")
        wanted = self.filter.event_filter()
        if table and (wanted.dml_insert or not wanted.wants_rows(schema, table)):
            raise ValueError(
                f"snapshot.signal_table {schema}.{table}: [instance.filter] leaves its rows out, "
                "so no signal would ever be seen"
            )
        return self

    @model_validator(mode="after")
    def _decoders_positive(self) -> InstanceConfig:
        if isinstance(self.decoders, int) and self.decoders < 0:
            raise ValueError("decoders must be 0 (fused), a positive number, or 'auto'")
        return self


class CanalConfig(Section):
    """A deployment: its destinations, where cursors live, how to reach Ray."""

    instance: tuple[InstanceConfig, ...]
    meta: MetaConfig = MetaConfig()
    ray: RayConfig = RayConfig()
    server: ServerConfig | None = None
    flight: FlightConfig | None = None
    console: ConsoleConfig | None = None
    sink: tuple[SinkConfig, ...] = ()
    notify: NotifyConfig | None = None
    log: LogConfig | None = None

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
        return self

    @model_validator(mode="after")
    def _nodes_fit(self) -> CanalConfig:
        """Let each destination know its nodes, and refuse those that would lose its records."""
        for instance in self.instance:
            if not instance.node:
                default = HEAD if instance.source.files else self.ray.node
                object.__setattr__(instance, "node", default)  # frozen
            if instance.node == HEAD or self.meta.shared:
                continue
            where = f"destination {instance.destination}: node = {instance.node!r}"
            if not self.meta.is_server:
                raise ValueError(
                    f"{where} may move to another machine, which does not have its cursors "
                    f'(meta.backend = "{self.meta.backend}"): keep them in "mysql" or "redis"; or '
                    "say meta.shared = true, if meta.path is on a disk that all nodes share"
                )
            if instance.tsdb.path:
                raise ValueError(
                    f"{where} may move to another machine, which does not have its schemas "
                    "(tsdb.path): leave it out, so that they are kept with the cursors"
                )
        return self

    @model_validator(mode="after")
    def _heads_share_cursors(self) -> CanalConfig:
        if self.ray.standby and not self.meta.shared and not self.meta.is_server:
            raise ValueError(
                "ray.standby: another head has to find the cursors, which are in "
                f'meta.backend = "{self.meta.backend}": keep them in "mysql" or "redis"; or say '
                "meta.shared = true, if meta.path is on a disk that all heads share"
            )
        return self

    @model_validator(mode="after")
    def _sinks_fit(self) -> CanalConfig:
        names = [sink.name for sink in self.sink]
        if len(set(names)) != len(names):
            raise ValueError(f"sinks must have names of their own, got {names}")
        destinations = [instance.destination for instance in self.instance]
        taken: dict[tuple[str, int], str] = {}
        for sink in self.sink:
            if sink.destination not in destinations:
                raise ValueError(
                    f"sink {sink.name}: no destination {sink.destination!r}; there are "
                    f"{', '.join(destinations)}"
                )
            other = taken.setdefault((sink.destination, sink.client_id), sink.name)
            if other != sink.name:
                raise ValueError(
                    f"sinks {other} and {sink.name} have the same client_id {sink.client_id}: "
                    "each would take the other's rows; give each its own"
                )
        return self

    def sink_named(self, name: str) -> SinkConfig:
        """Return a sink. Raises ConfigError: there is none of that name."""
        for sink in self.sink:
            if sink.name == name:
                return sink
        known = ", ".join(sink.name for sink in self.sink) or "none"
        raise ConfigError(f"no sink {name!r} in the configuration; it has {known}")

    def destination(self, name: str) -> InstanceConfig:
        """Return the configuration of a destination. Raises ConfigError: there is none of that
        name."""
        for instance in self.instance:
            if instance.destination == name:
                return instance
        raise ConfigError(
            f"no destination {name!r} in the configuration; it has "
            f"{', '.join(i.destination for i in self.instance)}"
        )
