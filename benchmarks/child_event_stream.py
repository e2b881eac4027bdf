"""Child: mysql-event-stream's CdcEngine over binlog files; runs in its own virtual environment.

python child_event_stream.py ROW_LIMIT FILE…
"""

from __future__ import annotations

import sys

# A script beside it: the environment has none of our packages.
from clock import Clock  # type: ignore[import-not-found]
from mysql_event_stream import CdcEngine  # type: ignore[import-not-found]

PIECE_BYTES = 1 << 20


def main(limit: int, files: list[str]) -> None:
    rows = fed = 0
    with Clock() as clock, CdcEngine() as engine:
        for name in files:
            with open(name, "rb") as file:
                fed += len(file.read(4))
                while rows < limit and (piece := file.read(PIECE_BYTES)):
                    at = 0
                    while at < len(piece) or engine.has_events():
                        if at < len(piece):
                            at += engine.feed(piece[at:])
                        while engine.next_event() is not None:
                            rows += 1
                            if rows == limit // 4:
                                clock.mark(rows, fed + at)
                    fed += len(piece)
    clock.report(rows, fed)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
