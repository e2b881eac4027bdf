"""An application whose two queries write a table's changes to Parquet and Delta (kills.py).

    spark-submit --jars ray_canal.jar killed_stream.py OPTIONS FOLDER RESULT

Parquet by Spark's own file sink; Delta in a function, with the micro-batch's number in the commit.
At the end, RESULT has the place of each row in both.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

PLACE = ("journal_name", "position", "row")
_APP = "killed_stream"
NOTHING = "has no change within"
"""What `load()` says where the log has nothing more for the subscriber."""


def append_once(table: str, frame: Any, number: int) -> None:
    """Append a micro-batch, if it is not there."""
    done = DeltaTable(table).transaction_version(_APP) if DeltaTable.is_deltatable(table) else None
    if done is not None and done >= number:
        return
    rows = [tuple(row) for row in frame.select(*PLACE).collect()]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int64(), pa.int64())
    data = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=PLACE)
    once = CommitProperties(app_transactions=[Transaction(_APP, number)])
    write_deltalake(table, data, mode="append", commit_properties=once)


def loaded(reader: Any, schema: Path) -> Any:
    """Return the stream with the columns of what comes next; those of the last `load()`, kept in
    the file `schema`, once all is acked."""
    try:
        frame = reader.load()
    except Exception as error:
        if NOTHING not in str(error) or not schema.exists():
            raise
        return reader.schema(StructType.fromJson(json.loads(schema.read_text()))).load()
    whole = schema.with_suffix(".new")
    whole.write_text(frame.schema.json())
    os.replace(whole, schema)
    return frame


def main(options: dict[str, str], folder: str, result: str) -> None:
    session = SparkSession.builder.getOrCreate()
    delta = f"{folder}/delta"

    def changes(client_id: int) -> Any:
        reader = session.readStream.format("ray_canal").options(**options)
        frame = loaded(reader.option("client_id", client_id), Path(folder, f"{client_id}.schema"))
        return frame.select(*PLACE, "after").writeStream.trigger(availableNow=True)

    queries = [
        changes(1)
        .format("parquet")
        .option("path", f"{folder}/parquet")
        .option("checkpointLocation", f"{folder}/checkpoint-parquet")
        .start(),
        changes(2)
        .foreachBatch(lambda frame, number: append_once(delta, frame, number))
        .option("checkpointLocation", f"{folder}/checkpoint-delta")
        .start(),
    ]
    for query in queries:
        query.awaitTermination()
    parquet = session.read.parquet(f"{folder}/parquet").select(*PLACE).collect()
    found = DeltaTable(delta).to_pyarrow_table().to_pylist()
    rows = {
        "parquet": [tuple(row) for row in parquet],
        "delta": [tuple(row[name] for name in PLACE) for row in found],
    }
    Path(result).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), *sys.argv[2:])
