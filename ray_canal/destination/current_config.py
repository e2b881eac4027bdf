"""A destination's configuration as it counts now: its filter may be changed at run time."""

from __future__ import annotations

from ray_canal.config import FilterConfig, InstanceConfig


class CurrentConfig:
    """`now` counts for log pipelines that begin from now on. `own_tables`: the tables that keep our
    own cursors, which no filter shows."""

    def __init__(self, config: InstanceConfig, own_tables: str = "") -> None:
        self.now = config
        self._own_tables = own_tables

    @property
    def destination(self) -> str:
        """Name of the destination."""
        return self.now.destination

    def use_filter(self, shown: FilterConfig) -> None:
        """Replace the filter."""
        self.now = self.now.model_copy(update={"filter": shown.hiding(self._own_tables)})
