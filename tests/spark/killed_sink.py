"""A process that writes a log to Parquet and kills itself on the way; started by test_parquet.py.

    python -m tests.spark.killed_sink FOLDER ROWS_A_BATCH CALL STEP

The log is rows 0 to 19 of shop.item; what was acked is a number in FOLDER/acked. SIGKILL comes
after the STEP-th file-system call CALL of the sink ("" for none).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ray_canal.spark.hadoop_files import HadoopFiles
from ray_canal.spark.parquet import ParquetSink
from ray_canal.spark.stream import run
from tests.spark.conftest import ITEM, QUICK_JVM, Message, change_batch

ROWS = 20


class DurableLog:
    """Rows behind the durable cursor, in batches of a size that each process has again."""

    def __init__(self, cursor: Path, size: int) -> None:
        self._cursor, self._size = cursor, size
        self._given = int(cursor.read_text()) if cursor.exists() else 0

    def get_without_ack(self, batch_size: int = 0, timeout: float | None = None) -> Message:
        first, end = self._given, min(self._given + self._size, ROWS)
        self._given = end
        rows = [("INSERT", None, {"id": n, "name": f"item {n}"}) for n in range(first, end)]
        batches = [change_batch([row], ITEM, position=100 + 10 * row[2]["id"]) for row in rows]
        return Message(end if rows else -1, batches, finished=not rows)

    def ack(self, batch_id: int) -> None:
        self._cursor.write_text(str(batch_id))

    def rollback(self) -> None:
        raise AssertionError("nothing fails here")


class DeadlyFiles:
    def __init__(self, files: HadoopFiles, call: str, step: int) -> None:
        self._files, self._call, self._left = files, call, step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name != self._call:
            return found

        def called(*arguments: Any) -> Any:
            answer = found(*arguments)
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return called


def main(folder: str, size: str, call: str, step: str) -> None:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .getOrCreate()
    )
    sink = ParquetSink(session, f"{folder}/out")
    files: Any = DeadlyFiles(HadoopFiles(session, sink.path), call, int(step))
    sink._files = files
    run(DurableLog(Path(folder, "acked"), int(size)), session, sink)
    print(sink.counts["shop.item", "INSERT"])


if __name__ == "__main__":
    main(*sys.argv[1:])
