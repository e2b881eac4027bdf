"""The disk of a simulated destination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.processes import Outside, Reply, task_error


@dataclass(frozen=True)
class DiskSegment:
    number: int
    size_bytes: int


class SimulatedSpiller:
    """The process that has a log's part on disk."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._segments: dict[int, tuple[Any, Any]] = {}
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _SpillerMethod(self, name)

    def call(self, name: str, arguments: tuple[Any, ...]) -> Reply:
        reply = Reply(self._outside.loop)
        try:
            found = getattr(self, f"_{name}")(*arguments)
        except OSError as error:
            reply.set(error=task_error(error))
        else:
            wait_s = self._outside.random.choice((0.0, 0.001, 0.05))
            self._outside.loop.call_later(wait_s, lambda: reply.set(found))
        return reply

    def _write(self, chunk: Any, payload: Any) -> DiskSegment:
        if self._outside.disk_full:
            raise OSError(28, "No space left on device")
        self._number += 1
        self._segments[self._number] = (chunk, payload)
        return DiskSegment(self._number, chunk.info.size_bytes)

    def _read_log_chunk(self, segment: DiskSegment) -> Any:
        return self._segments[segment.number][0]

    def _read(self, segment: DiskSegment) -> Any:
        return self._segments[segment.number][1]

    def _drop(self, segments: Any) -> None:
        for segment in segments:
            del self._segments[segment.number]

    def _close(self) -> None:
        self._segments.clear()


class _SpillerMethod:
    def __init__(self, spiller: SimulatedSpiller, name: str) -> None:
        self._spiller, self._name = spiller, name

    def remote(self, *arguments: Any) -> Reply:
        return self._spiller.call(self._name, arguments)
