"""[console]: the web page, the REST API and the console's own metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ray_canal.config.section import FilePath
from ray_canal.config.server import DoorConfig


class ConsoleConfig(DoorConfig):
    """The console of a deployment. Without a password it listens on this machine alone.

    `hidden_columns` are patterns over `schema.table.column` with `*` and `?`: the live tail shows
    no value of theirs. `canal_metric_names` adds the names that Canal's own server exports.
    """

    port: int = Field(11116, ge=0, le=65535)
    refresh_s: float = Field(2.0, ge=0.2)
    idle_timeout_s: float = Field(28800.0, gt=0)
    logins_max: int = Field(1024, ge=1)
    connections_max: int = Field(256, ge=4)
    tails_max: int = Field(8, ge=0)
    hidden_columns: tuple[str, ...] = ()
    canal_metric_names: bool = False
    log_format: Literal["text", "json"] = "text"
    audit_log: FilePath = ""
