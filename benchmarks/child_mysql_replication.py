"""Child: mysql-replication's BinLogStreamReader from a server that serves the workload's files.

python child_mysql_replication.py ROW_LIMIT PORT
"""

from __future__ import annotations

import sys

from clock import Clock  # type: ignore[import-not-found]  # a script beside it
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent


def main(limit: int, port: int) -> None:
    stream = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": port, "user": "root", "passwd": ""},
        server_id=4_000_001,
        log_file="mysql-bin.000001",
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    rows = position = 0
    with Clock() as clock:
        for event in stream:
            rows += len(event.rows)
            position = stream.log_pos
            if not clock.marked and rows >= limit // 4:
                clock.mark(rows, position)
            if rows >= limit:
                break
    stream.close()
    clock.report(rows, position)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
