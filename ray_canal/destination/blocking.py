"""Running async code without an event loop: one core serves callers that await and that block."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine whose every await blocks until it is done.

    It runs in the caller's thread, so an interrupt (Ctrl-C) is raised where it waits. Raises
    RuntimeError: it waited for an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError(f"{work!r} waits for an event loop, which a blocking call does not have")
