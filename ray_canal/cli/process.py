"""Streams and descriptors of a command, made ready before it begins."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

_STDERR = 2


def prepare_process() -> None:
    """Make streams and descriptors ready for whatever a command does."""
    _fill_closed_streams()
    _take_any_text()


def _fill_closed_streams() -> None:
    """Have descriptors 0 to 2 taken where the caller closed them (`>&-`): a file of ours that got
    one of them would have in it what a library prints."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)


def _take_any_text() -> None:
    """Have standard output write what its encoding lacks as escapes, as standard error does."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
