"""An application of a Spark that has nothing of ray_canal but its jar (test_standalone.py).

    spark-submit --jars ray_canal.jar standalone_app.py OPTIONS FOLDER

OPTIONS: the source's, as JSON, with `client_id` for the stream. Prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

COLUMNS = (
    "event_type, journal_name, position, row, execute_time, gtid, transaction, transaction_row, "
    "before, after"
)
"""Without the timeline, which files alone have not."""
HASH = f"count(*) AS rows, CAST(sum(CAST(xxhash64({COLUMNS}) AS DECIMAL(38,0))) AS STRING) AS hash"


def main(options: dict[str, str], folder: str) -> None:
    session = SparkSession.builder.getOrCreate()
    client_id = options.pop("client_id")
    whole = session.read.format("ray_canal").options(**options).load()
    found = {"spark": session.version, "partitions": whole.rdd.getNumPartitions()}
    whole.createOrReplaceTempView("whole")
    found["batch"] = tuple(session.sql(f"SELECT {HASH} FROM whole").first())
    for number in range(2):
        stream = session.readStream.format("ray_canal").options(**options)
        query = (
            stream.option("client_id", client_id)
            .option("batch_size", "60")
            .option("maxBytesPerTrigger", "256k")
            .schema(whole.schema)
            .load()
            .writeStream.format("parquet")
            .option("path", f"{folder}/out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found[f"batches {number}"] = sum(
            name.isdigit() for name in os.listdir(f"{folder}/checkpoint/commits")
        )
    session.read.parquet(f"{folder}/out").createOrReplaceTempView("written")
    found["stream"] = tuple(session.sql(f"SELECT {HASH} FROM written").first())
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
