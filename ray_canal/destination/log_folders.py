"""Folders of a destination's logs on disk."""

from __future__ import annotations

import asyncio
import uuid

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.log import spill_folder

_ENDING_S = 30.0


class LogFolders:
    """Names a folder for each log of one destination, and removes those of earlier lives."""

    def __init__(self, config: InstanceConfig, meta: MetaConfig) -> None:
        self._root = spill_folder.root_of(config, meta) / config.destination

    def new(self) -> str:
        """Return the path of a folder that no other log uses; it is not made yet."""
        return str(self._root / uuid.uuid4().hex)

    async def sweep(self) -> None:
        """Remove what earlier lives have left; twice, as their processes may still be ending."""
        for pause_s in (0.0, _ENDING_S):
            await asyncio.sleep(pause_s)
            await asyncio.to_thread(spill_folder.sweep, self._root)
