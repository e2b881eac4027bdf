"""Open a destination's source: binlog files, or a live server."""

from __future__ import annotations

from ray_canal.config import InstanceConfig
from ray_canal.source.files import BinlogFiles
from ray_canal.source.port import Source


def open_source(config: InstanceConfig) -> Source:
    """The source of a destination, not yet opened."""
    if config.source.files:
        return BinlogFiles(config)
    from ray_canal.source.live import LiveSource  # a client library that files do not need

    return LiveSource(config)
