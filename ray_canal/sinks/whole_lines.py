"""The end of a file of JSON lines, which a killed process or a full disk has cut off in a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO

_BLOCK_BYTES = 64 << 10


def end_last_line(path: Path) -> None:
    """Cut off half a line at a file's end: it was not committed, so it comes again. A whole one
    that lacks its line feed alone gets that. Raises OSError."""
    if not path.is_file():  # a device has no end
        return
    with path.open("r+b") as file:
        start = _last_line(file)
        file.seek(start)
        last = file.read()
        if not last:
            return
        try:
            json.loads(last)
        except ValueError:
            file.truncate(start)
        else:
            file.write(b"\n")


def _last_line(file: BinaryIO) -> int:
    """Return where the line begins that no line feed ends; the file's size if there is none."""
    at = file.seek(0, os.SEEK_END)
    while at:
        length = min(_BLOCK_BYTES, at)
        at -= length
        file.seek(at)
        found = file.read(length).rfind(b"\n")
        if found >= 0:
            return at + found + 1
    return 0
