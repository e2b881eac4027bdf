"""Child: mysql-replication's BinLogStreamReader: python mysql_replication.py PORT ROWS WARM_ROWS"""

from __future__ import annotations

import sys

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from saying import say, until_told  # type: ignore[import-not-found]  # a script beside it


def main(port: int, wanted: int, warm: int) -> None:
    stream = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": port, "user": "root", "passwd": ""},
        server_id=4_000_001,
        log_file="mysql-bin.000001",
        log_pos=4,
        resume_stream=True,
        blocking=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    rows = 0
    say("ready", 0)
    for event in stream:
        before = rows
        rows += len(event.rows)
        if before < warm <= rows:
            say("mark", rows)
        if rows >= wanted:
            break
    say("end", rows)
    until_told()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
