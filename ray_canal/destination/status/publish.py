"""Publishes a destination's status as metrics, every few seconds for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ray_canal.destination.ports import MetricsPublisher

logger = logging.getLogger(__name__)

FIRST_S, PERIOD_S = 2.0, 10.0  # Ray's agent collects no more often


async def publish_metrics(
    metrics: MetricsPublisher,
    destination: str,
    status: Callable[[], Awaitable[Mapping[str, Any]]],
) -> None:
    """Publish until cancelled; then say that the destination is gone."""
    pause_s = FIRST_S
    try:
        while True:
            await asyncio.sleep(pause_s)
            try:
                metrics.publish(await status())
            except Exception as error:
                # Whatever it was, it is no reason to fall silent, or to stop.
                logger.warning("destination %s: no metrics: %s", destination, error)
            pause_s = PERIOD_S
    finally:
        metrics.gone()
