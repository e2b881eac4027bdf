"""Streams and descriptors of a command, made ready before it begins."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from io import TextIOWrapper

_STDERR = 2
_OPEN_FILES = 65536


def prepare_process() -> None:
    """Make streams and descriptors ready for whatever a command does."""
    _fill_closed_streams()
    _take_any_text()
    _allow_open_files()


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


def _allow_open_files() -> None:
    """Raise the limit of open files as far as this user may: where it is 1024 a file for each table
    (`--format arrow`), or a connection for each client, may be too many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may refuse it
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
