"""[flight]: Arrow Flight."""

from __future__ import annotations

from pydantic import Field

from ray_canal.config.server import DoorConfig


class FlightConfig(DoorConfig):
    """Arrow Flight for all destinations of the cluster. Without this section, no port is opened."""

    port: int = Field(11115, ge=0, le=65535)
    idle_timeout_s: float = Field(3600.0, gt=0)
    logins_max: int = Field(4096, ge=1)
    subscribers_max: int = Field(1024, ge=1)
    batch_rows: int = Field(16384, ge=1)
    batch_size: int = Field(8192, ge=1)
    read_bytes_max: int = Field(2 << 30, ge=1)
