"""The log that a destination serves now, and the one that is being opened to replace it."""

from __future__ import annotations

from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity


class CurrentLog:
    """`pipeline` is None before the first generation and between two; `opening` stands at its
    source soon. `identity` and `start` are of the newest generation, also after its end.
    `delivered`: the newest place of which a batch of this generation was handed out."""

    def __init__(self) -> None:
        self.pipeline: LogPipeline | None = None
        self.opening: LogPipeline | None = None
        self.identity = SourceIdentity("")
        self.start: EntryPosition | None = None
        self.start_reason = ""
        self.delivered: EntryPosition | None = None

    @property
    def newest(self) -> LogPipeline | None:
        """The pipeline that is being opened, else the one that is served."""
        return self.opening or self.pipeline

    def first_position(self) -> LogPosition | None:
        """Return where the log begins now, or began when it ended; None before the first one."""
        if self.pipeline is not None:
            return LogPosition(self.identity, self.pipeline.store.first_position)
        return None if self.start is None else LogPosition(self.identity, self.start)

    def last_position(self) -> EntryPosition | None:
        """Return how far the log that is served was read; None: there is none."""
        return None if self.pipeline is None else self.pipeline.store.last_position

    def fail(self, error: Exception) -> None:
        """End the generation that is served, if there is one."""
        if self.pipeline is not None:
            self.pipeline.fail(error)

    async def stop_upstream(self) -> None:
        """End the upstream; what is in the log can still be read."""
        opening, self.opening = self.opening, None
        if opening is not None:
            await opening.close()
        if self.pipeline is not None:
            await self.pipeline.stop()
