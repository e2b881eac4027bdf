"""Telling people before the server purges what a destination still needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ray_canal.source.port import SourceStatus

logger = logging.getLogger(__name__)

_WATCH_EVERY_S = 60.0


async def watch_purge(
    destination: str,
    source_status: Callable[[], Awaitable[SourceStatus | None]],
    every_s: float = _WATCH_EVERY_S,
) -> None:
    """Log a warning when the server is about to purge what the oldest cursor needs, once each time
    that it becomes so. Runs until it is cancelled."""
    warned = False
    while True:
        await asyncio.sleep(every_s)
        try:
            source = await source_status()
        except Exception as error:
            logger.warning("destination %s: purges are not watched: %s", destination, error)
            continue
        purge = None if source is None else source.purge
        if purge is not None and purge.warning and not warned:
            logger.warning("destination %s: %s", destination, purge.warning)
        warned = bool(purge is not None and purge.warning)
