"""A Spark standalone of pyspark's own scripts, which reaches us by Flight's address alone."""

from __future__ import annotations

import gc
import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

import ray_canal as canal
from ray_canal.demo import BINLOGS
from ray_canal.spark.frames import to_frames
from ray_canal.spark.source_jar import jar
from tests.certificates import make_certificate
from tests.processes import wait_for
from tests.spark.standalone import standalone
from tests.spark.standalone_app import HASH

APP = Path(__file__).with_name("standalone_app.py")
TABLE = "shop.orders"
SPARK41 = os.environ.get("RAY_CANAL_SPARK41", "")
"""A Python whose pyspark is 4.1 (`make spark41`)."""


@pytest.fixture
def options(local_ray: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of a table of the demo's files behind a Flight port with TLS and a password."""
    name = f"standalone_{uuid.uuid4().hex[:8]}"
    source = {"files": [str(path) for path in BINLOGS], "start": "earliest"}
    cert, key = make_certificate(tmp_path)
    tree: dict[str, Any] = {
        "meta": {"backend": "memory"},
        "instance": [{"destination": name, "source": source}],
        "flight": {
            **{"host": "127.0.0.1", "port": 0, "username": "spark", "password": "p"},
            "subscribers_max": 4,
            "tls": {"cert": str(cert), "key": str(key)},
        },
    }
    canal.start(tree)
    address = canal.serve_flight(tree)
    yield {
        "address": f"grpc+tls://localhost:{address.rpartition(':')[2]}",
        **{"username": "spark", "password": "p", "ca": str(cert)},
        **{"destination": name, "table": TABLE},
    }
    canal.stop_flight()
    canal.stop(name)


def expected(spark: Any) -> list[Any]:
    """Rows and hash of the table as this session reads it."""
    batches = list(canal.decode_files(BINLOGS, tables=r"shop\.orders"))
    with to_frames(spark, batches) as made:
        made.by_table[TABLE].createOrReplaceTempView("expected")
        return list(spark.sql(f"SELECT {HASH} FROM expected").first())


@pytest.mark.soak
def test_rows_and_hashes_are_those_of_a_session_on_ray(
    spark, options: dict[str, str], tmp_path: Path
) -> None:
    python = SPARK41 or sys.executable
    home = Path(pyspark.__file__).parent
    if SPARK41:
        (home,) = Path(SPARK41).parents[1].glob("lib/python*/site-packages/pyspark")
    with standalone(home, python, tmp_path) as cluster:
        given = json.dumps({**options, "client_id": "77"})
        output = cluster.submit(jar(home), APP, given, str(tmp_path))
    found = json.loads(output.splitlines()[-1])
    assert found["spark"].startswith("4.1." if SPARK41 else "3.5.")
    assert found["batch"] == expected(spark)
    assert found["stream"] == expected(spark)
    assert found["batches 0"] > 2
    assert found["batches 1"] == found["batches 0"]  # nothing comes again
    # What the application's two batch reads held went with it: there is room for four others.
    reader = spark.read.format("ray_canal").options(**options).schema("event_type STRING")
    frames = [reader.load() for _ in range(4)]
    assert [frame.rdd.getNumPartitions() for frame in frames] == [0] * 4
    with pytest.raises(Exception, match="4 streams and reads are open"):
        reader.load().count()
    frames.clear()
    gc.collect()  # py4j lets them go soon; the JVM, which has room, would keep them
    wait_for(lambda: _is_read(reader), 120, "room for another read")


def _is_read(reader: Any) -> bool:
    try:
        return bool(reader.load().count() == 0)
    except Exception as error:
        if "streams and reads are open" not in str(error):
            raise
        return False


def test_what_is_wrong_is_told(spark, options: dict[str, str]) -> None:
    def refuses(match: str, **more: str) -> None:
        reader = spark.read.format("ray_canal").options(**{**options, **more})
        with pytest.raises(Exception, match=match):
            reader.load()

    refuses("log in with a username and password", password="wrong")
    refuses("no destination 'nobody'", destination="nobody")
    refuses("give grpc://HOST:PORT", address="localhost:1")
    refuses("cannot read the file /nowhere", ca="/nowhere")
    refuses("has no option tabel", tabel="x")
    files = spark.read.format("ray_canal").option("address", options["address"])
    files = files.option("ca", options["ca"]).option("table", TABLE)
    files = files.option("username", "spark").option("password", "p")
    with pytest.raises(Exception, match=r"give .option\(.destination"):
        files.load(str(BINLOGS[0]))
