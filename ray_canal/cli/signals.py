"""Ctrl-C, SIGTERM and others: as an event that a command waits for, or as its end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import typer


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


def interrupted_by_sigterm() -> None:
    """Have SIGTERM interrupt this process as Ctrl-C does: what a command says or undoes then, it
    says or undoes for a supervisor, too."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextlib.contextmanager
def ending_with_head() -> Iterator[None]:
    """End this process soon after Ray's head: a supervisor that ends a whole group of processes
    ends the local Ray next to this command, which then has nothing to stop any more."""
    from ray_canal.client.joining import watching_head

    def end(is_local: bool) -> None:
        ended = "Ray has ended, and what ran here with it; the next start goes on at its cursors"
        gone = "ray-canal: Ray's head does not answer: what was started here was not stopped"
        typer.echo(ended if is_local else gone, err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if is_local else 1)  # what Ray does at the end of a process needs the head, too

    with watching_head(end):
        yield
