"""Ctrl-C, SIGTERM and others as an event that a command waits for."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def until_signal(*more: signal.Signals) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and `more` set; a second one interrupts at once. Those of
    `more` that are ignored (nohup) stay so."""
    stopped = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    heard = [n for n in more if signal.getsignal(n) is not signal.SIG_IGN]
    before = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM, *heard)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
