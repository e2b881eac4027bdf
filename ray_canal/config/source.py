"""[instance.source]: a live server or binlog files, and where reading starts."""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ray_canal.config.section import FilePath, SecretText, Section, TlsConfig, host_port_of
from ray_canal.config.times import iso_time
from ray_canal.errors import ConfigError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class SourceConfig(Section):
    """Settings of [instance.source], where events come from: a live server (`address`) or local
    binlog files (`files`). `section`: what messages call them."""

    section: ClassVar[str] = "source"
    address: str = ""
    standby: tuple[str, ...] = ()  # other servers with the same data, to go on at
    files: tuple[FilePath, ...] = ()
    follow: bool = False
    schema_sql: FilePath = ""  # file with CREATE TABLE statements, for binlogs without row metadata
    username: str = ""
    password: SecretText = ""
    server_id: int = Field(0, ge=0, le=2**32 - 1)  # 0: chosen so that it does not collide
    gtid: bool = False
    # Where a destination without any cursor starts.
    start: Literal["latest", "earliest", "position", "gtid", "timestamp"] = "latest"
    journal_name: str = ""
    position: int = Field(4, ge=4)
    gtid_set: str = ""
    timestamp: str = ""  # ISO 8601 with a zone, to the microsecond; or Canal's milliseconds
    # What to do where the server has purged what we need.
    on_purged: Literal["fail", "earliest", "latest", "snapshot"] = "fail"
    # Whether new subscribers that do not say get the rows that tables hold, into their log.
    snapshot: Literal["initial", "never"] = "never"
    # What to do where its log is not the one that the cursors are of: reset, restored, replaced.
    on_reset: Literal["fail", "earliest", "latest", "snapshot"] = "fail"
    # Warn when the retention may take the oldest cursor's file sooner than this.
    purge_warning_hours: float = Field(2.0, ge=0)
    # Without GTIDs: how far before the last event to start on another server.
    fallback_s: float = Field(60.0, ge=0)
    # With standbys: what is asked of the server, how often, and after how many failures in a row
    # it is left.
    detect: bool = False  # without standbys, too: then failures are only counted
    detect_sql: str = "SELECT 1"
    detect_interval_s: float = Field(3.0, gt=0)
    detect_failures: int = Field(3, ge=1)
    heartbeat_s: float = Field(5.0, gt=0)
    read_timeout_s: float = Field(15.0, gt=0)
    connect_timeout_s: float = Field(10.0, gt=0)
    reconnect_max_s: float = Field(20.0, gt=0)
    semi_sync: bool = False
    # The server's, of binlog files; "auto": a server is asked, of files it is not known.
    lower_case_table_names: Literal["auto", 0, 1, 2] = "auto"
    # The BIGINT key that the server adds to keyless tables; "auto": Alibaba RDS's and PolarDB-X's.
    hidden_key: str = "auto"
    # Events that are left out if they cannot be read, each by its place: "mysql-bin.000012:4711".
    skip_events: tuple[str, ...] = ()
    # Others that cannot be read; "dead_letter": they are kept for `ray-canal redrive`.
    on_undecodable: Literal["stop", "skip", "dead_letter"] = "stop"
    receive_buffer_bytes: int = Field(4 << 20, ge=64 << 10)
    event_bytes_max: int = Field((1 << 30) + (1 << 20), ge=1 << 20)
    tls: TlsConfig = TlsConfig()

    @model_validator(mode="after")
    def _one_source(self) -> SourceConfig:
        if bool(self.address) == bool(self.files):
            raise ValueError("give either `address` (a server) or `files` (binlog files)")
        if self.files and self.start == "gtid":
            raise ValueError(
                '`start = "gtid"` needs a server (`address`): binlog files are read from their '
                "beginning, or from a position or a timestamp"
            )
        if self.standby and not self.address:
            raise ValueError("`standby` needs `address`, the server that is read first")
        for address in self.addresses:
            try:
                host_port_of(address, 3306, "address")
            except ConfigError as error:
                raise ValueError(str(error)) from None
        if len(set(self.addresses)) != len(self.addresses):
            raise ValueError(f"`address` and `standby` name a server twice: {self.addresses}")
        if self.start == "position" and not self.journal_name:
            raise ValueError('start = "position" needs `journal_name` (and `position`)')
        if self.start == "gtid" and not self.gtid_set:
            raise ValueError('start = "gtid" needs `gtid_set`')
        if self.start == "timestamp" or self.timestamp:
            _ = self.start_time_us
        _ = self.skipped_places
        return self

    @property
    def skipped_places(self) -> tuple[tuple[str, int], ...]:
        """`skip_events` as (file, offset). Raises ValueError."""
        found = []
        for text in self.skip_events:
            name, colon, position = text.rpartition(":")
            if not (colon and name and position.isascii() and position.isdigit()):
                raise ValueError(
                    f'skip_events: {text!r} is no place; expected "mysql-bin.000012:4711"'
                )
            found.append((name, int(position)))
        return tuple(found)

    @property
    def names_setting(self) -> int | None:
        """`lower_case_table_names`, where it is given."""
        found = self.lower_case_table_names
        return None if found == "auto" else found

    @property
    def start_time_us(self) -> int:
        """`timestamp` in microseconds since the epoch. Raises ValueError."""
        text = self.timestamp.strip()
        if text.isdigit():
            return int(text) * 1000
        try:
            time = iso_time(text)
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
        """Return a copy with the server at this address before the others."""
        others = tuple(each for each in self.addresses if each != address)
        standby = others if address in self.addresses else self.standby
        return self.model_copy(update={"address": address, "standby": standby})

    def for_second_dump(self, **changed: Any) -> SourceConfig:
        """Return the settings of a dump next to the destination's own, of this server alone: it
        would end the other one of two with the same id, and wait for both where they are
        semi-synchronous. `changed`: what else is to differ."""
        own = {"server_id": 0, "semi_sync": False, "standby": (), "detect": False}
        return self.model_copy(update={**own, **changed})

    @property
    def host_port(self) -> tuple[str, int]:
        """Return host and port of `address`. Raises ConfigError."""
        return host_port_of(self.address, 3306, "source.address")
