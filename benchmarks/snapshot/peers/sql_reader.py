"""Child, in a peer's own environment: reads a table with it, warm, so many times.

    python sql_reader.py SYSTEM PORT TABLE PARTS RUNS

Prints [[rows, seconds, CPU seconds], ...].
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time


def connectorx(port: int, table: str, parts: int) -> int:
    connectorx = importlib.import_module("connectorx")
    url = f"mysql://root@127.0.0.1:{port}/bench"
    cut = {"partition_on": "id", "partition_num": parts} if parts > 1 else {}
    query = f"SELECT * FROM bench.{table}"
    found = connectorx.read_sql(url, query, return_type="arrow", protocol="binary", **cut)
    return int(found.num_rows)


def mysqlclient(port: int, table: str, parts: int) -> int:
    streamed = importlib.import_module("MySQLdb.cursors").SSCursor
    connection = importlib.import_module("MySQLdb").connect(
        host="127.0.0.1", port=port, user="root", cursorclass=streamed
    )
    cursor = connection.cursor()
    cursor.execute(f"SELECT * FROM bench.{table}")
    rows = 0
    while True:
        found = cursor.fetchmany(1000)
        if not found:
            return rows
        rows += len(found)


def main(system: str, port: int, table: str, parts: int, runs: int) -> None:
    read = {"connectorx": connectorx, "mysqlclient": mysqlclient}[system]
    found = []
    for _ in range(runs + 1):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        rows = read(port, table, parts)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append((rows, time.perf_counter() - began, cpu_s))
    print(json.dumps(found[1:]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
