"""The destination's own filter, which may be changed at run time: what counts now, and its record.

The record keeps what the configuration said when it was written. Where the configuration says
something else since, that counts, and the record goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ray_canal.config import FilterConfig, InstanceConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.manager import MetaManager


class FilterRecord:
    """One destination's. `now` is what counts."""

    def __init__(self, config: InstanceConfig) -> None:
        self._destination = config.destination
        self._configured = self.now = config.filter
        self._out_of_date = False

    def load(self, meta: MetaManager) -> None:
        """Raises ConfigError: the record is damaged."""
        text = meta.load_filter(self._destination)
        if not text:
            return
        try:
            tree = json.loads(text)
            configured = FilterConfig.model_validate(tree["configured"])
            self.now = FilterConfig.model_validate(tree["now"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"the record of the destination's filter cannot be read ({error})"
            ).at(destination=self._destination) from None
        if configured != self._configured:
            self.now, self._out_of_date = self._configured, True

    def save(self, meta: MetaManager, epoch: int, changes: Mapping[str, object]) -> None:
        """Durable when it returns. Raises ConfigError: not a filter; Fenced."""
        wanted = self.now.changed(changes)
        self._write(meta, epoch, wanted)
        self.now, self._out_of_date = wanted, False

    def settle(self, meta: MetaManager, epoch: int) -> None:
        """Forget a record from before the configuration was changed; write one again that is not
        there any more. Raises Fenced."""
        if self._out_of_date:
            meta.save_filter(self._destination, epoch, "")
            self._out_of_date = False
        elif self.now != self._configured and not meta.load_filter(self._destination):
            self._write(meta, epoch, self.now)

    def _write(self, meta: MetaManager, epoch: int, now: FilterConfig) -> None:
        tree = {"configured": self._configured.model_dump(), "now": now.model_dump()}
        meta.save_filter(self._destination, epoch, json.dumps(tree, sort_keys=True))
