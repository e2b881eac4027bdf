"""Changes as Spark DataFrames, through RayDP (`pip install "ray-canal[spark]"`).

from ray_canal import spark

session = spark.session()
with canal.connect("orders") as connector:
    connector.subscribe(r"shop\\..*")
    spark.run(connector, session, lambda frames, message: ...)
"""

from __future__ import annotations

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'ray_canal.spark needs pyspark ({error}): pip install "ray-canal[spark]"'
    ) from error

from ray_canal.spark.frames import Frames, to_frames
from ray_canal.spark.history import scd2
from ray_canal.spark.mirrors import mirror
from ray_canal.spark.prepared import Prepared
from ray_canal.spark.request_server import serve_requests
from ray_canal.spark.session import provide_java, session, stop
from ray_canal.spark.source_jar import jar
from ray_canal.spark.state import key_columns, latest
from ray_canal.spark.stream import Progress, changes, release_changes, run

__all__ = [
    "Frames",
    "Prepared",
    "Progress",
    "changes",
    "jar",
    "key_columns",
    "latest",
    "mirror",
    "provide_java",
    "release_changes",
    "run",
    "scd2",
    "serve_requests",
    "session",
    "stop",
    "to_frames",
]
