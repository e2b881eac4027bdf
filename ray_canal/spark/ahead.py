"""Messages fetched and written for Spark ahead of the one in hand, by a thread of its own.

While Spark works on a message, the next is written and the one after it fetched. What is ahead is
outstanding: whoever ends early rolls it back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

EMPTY_BATCH = -1
_PUT_S = 0.1
"""So often a thread that is ahead looks whether it is still wanted."""


class Releasable(Protocol):
    """The written form of a message."""

    def release(self) -> None: ...


T = TypeVar("T", bound=Releasable)


class MessageSource(Protocol):
    """A connector, as far as `run` needs it; `ray_canal.Connector` is one."""

    def get_without_ack(self, batch_size: int = ..., timeout: float | None = ...) -> Any: ...

    def ack(self, batch_id: int) -> None: ...

    def rollback(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """Settings of fetching: `messages` at most (None: no limit), each as by `get_without_ack`.
    `ahead`: so many wait ready."""

    batch_size: int
    timeout: float | None
    messages: int | None = None
    ahead: int = 1


@dataclass
class _Item(Generic[T]):
    """A message and what was written of it; or an empty message; or what was raised."""

    message: Any = None
    written: T | None = None
    error: BaseException | None = None


class Ahead(Generic[T]):
    """The messages of a connector, in order, each with what `write` made of it."""

    def __init__(
        self,
        connector: MessageSource,
        wanted: Wanted,
        write: Callable[[Any], T],
        is_large: Callable[[T], bool] = lambda written: True,
    ) -> None:
        """After a message that is not large, the next is fetched when it is asked for: with all
        that has come until then."""
        self._connector = connector
        self._wanted = wanted
        self._write = write
        self._is_large = is_large
        self._asked = threading.Event()
        self._rests = False
        self._ready: queue.Queue[_Item[T]] = queue.Queue(wanted.ahead)
        self._stopped = threading.Event()
        self._fetched = 0
        self._taken = 0
        self._thread: threading.Thread | None = None
        # A get without a timeout could not be ended: then nothing is ahead.
        if wanted.timeout:
            self._thread = threading.Thread(target=self._run, name="ray_canal ahead", daemon=True)
            self._thread.start()

    def next(self, timeout: float | None = None) -> tuple[Any, T | None] | None:
        """The next message, maybe an empty one, and what was written of it; None: nothing within
        `timeout` (seconds; None: wait). Raises what get raised, or the writing."""
        if timeout != 0 and self._ready.empty():
            self._asked.set()
        try:
            item = self._ready.get(timeout=timeout) if self._thread is not None else self._item()
        except queue.Empty:
            return None
        if item.error is not None:
            self._ready.put(item)  # whoever asks again gets the same answer
            raise item.error
        if item.written is not None:
            self._taken += 1
        return item.message, item.written

    @property
    def is_ready(self) -> bool:
        """Return whether a message waits that was fetched before anybody asks for it now."""
        return not self._ready.empty()

    @property
    def rests(self) -> bool:
        """Return whether nothing is ready, and nothing fetched until somebody asks."""
        return self._rests and self._ready.empty()

    @property
    def has_more(self) -> bool:
        """Return whether messages were fetched that nobody has taken. Ask it after `close`."""
        return self._fetched > self._taken

    def close(self) -> None:
        """Stop fetching; free what was written and not taken. A get that waits is waited for."""
        self._stopped.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join()
        while not self._ready.empty():
            item = self._ready.get()
            if item.written is not None:
                item.written.release()

    def _run(self) -> None:
        while not self._stopped.is_set() and self._fetched != self._wanted.messages:
            rests = self._rests
            items = self._items_when_asked() if rests else [self._item()]
            if self._is_idle(items[-1]) and not self._ready.empty():
                if not rests:
                    self._stopped.wait(_PUT_S)
                continue  # what is ready says as much
            self._asked.clear()
            going_on = [self._put(item) for item in items]
            if not all(going_on):
                return

    def _items_when_asked(self) -> list[_Item[T]]:
        """Wait until somebody asks; return what is there then, else what comes first, with what has
        come behind it."""
        self._asked.wait()
        self._asked.clear()
        size, wait_s = self._wanted.batch_size, self._wanted.timeout
        found = self._item(size, None)
        if not self._is_idle(found) or self._stopped.is_set():
            return [found]
        first = self._item(1, wait_s)
        if first.written is None or self._fetched == self._wanted.messages:
            return [first]
        more = self._item(size, None)
        return [first] if self._is_idle(more) else [first, more]

    def _put(self, item: _Item[T]) -> bool:
        """Have an item ready. Return whether there are more to come."""
        while True:
            try:
                self._ready.put(item, timeout=_PUT_S)
                break
            except queue.Full:
                if self._stopped.is_set():
                    if item.written is not None:
                        item.written.release()
                    return False
        return item.error is None and not getattr(item.message, "finished", False)

    @staticmethod
    def _is_idle(item: _Item[T]) -> bool:
        """Return whether it says no more than that there is nothing now."""
        told = item.error is not None or item.written is not None
        return not told and not getattr(item.message, "finished", False)

    def _item(self, *given: Any) -> _Item[T]:
        """Fetch a message and write it. `given`: arguments of the get, if not those wanted."""
        try:
            wanted = self._wanted.batch_size, self._wanted.timeout
            message = self._connector.get_without_ack(*(given or wanted))
            if message.id == EMPTY_BATCH:
                return _Item(message)
            self._fetched += 1
            written = self._write(message)
            self._rests = not self._is_large(written)
            return _Item(message, written)
        except BaseException as error:
            return _Item(error=error)
