"""The jar of `format("ray_canal")`: compiled once per source and Spark version, into the cache.

Spark's own jars have janino, a Java compiler that needs no JDK: a JVM of Spark's compiles
`spark/java/` in three seconds, before the session that takes the jar. The cache is
`$RAY_CANAL_CACHE_DIR` (default ~/.cache/ray_canal), folder spark.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from ray_canal.cache_folder import cache_folder
from ray_canal.errors import CanalError

SOURCES = Path(__file__).parent / "java"
CLASS = "raycanal.Source"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_JAVA_VERSION = 8  # of the class files: what janino 3.1 writes, and every Java since reads


def jar(spark_home: Path | None = None) -> Path:
    """The jar with `format("ray_canal")`, for `spark.jars`. `spark_home`: the Spark that it is for,
    3.5 or 4; None: the pyspark of this process. Raises CanalError: it is not in the cache and
    cannot be compiled."""
    home = spark_home or Path(pyspark.__file__).parent
    found = _place(home)
    if not found.exists():
        try:
            classes = _compiled(home)
        except Exception as error:
            raise CanalError(f"janino of {_version(home)}: {error}") from error
        _write(found, classes)
    return found


def _version(home: Path) -> str:
    """Raises CanalError: it is no Spark."""
    for core in (home / "jars").glob("spark-core_*.jar"):
        return core.stem
    raise CanalError(f"{home} has no jars/spark-core_….jar: it is no home of a Spark")


def _place(home: Path) -> Path:
    digest = hashlib.sha256(_version(home).encode())
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return cache_folder("spark") / f"ray_canal-{digest.hexdigest()[:20]}.jar"


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.java"))


def _compiled(home: Path) -> dict[str, bytes]:
    """Class files by their paths in a jar."""
    with _spark_home_set(home):
        gateway: Any = launch_gateway(
            SparkConf(False).set("spark.driver.memory", "256m"),
            popen_kwargs={"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
        )
    try:
        jvm = gateway.jvm
        janino = jvm.org.codehaus.janino
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        made = jvm.java.util.HashMap()
        compiler = janino.Compiler()
        compiler.setIClassLoader(janino.ClassLoaderIClassLoader(loader))
        creator = jvm.org.codehaus.commons.compiler.util.resource.MapResourceCreator
        compiler.setClassFileCreator(creator(made))
        compiler.setSourceVersion(_JAVA_VERSION)
        compiler.setTargetVersion(_JAVA_VERSION)
        sources = _sources()
        files = gateway.new_array(jvm.java.io.File, len(sources))
        for index, source in enumerate(sources):
            files[index] = jvm.java.io.File(str(source))
        compiler.compile(files)
        return {name: bytes(made[name]) for name in made}
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # which ends it
        gateway.proc.wait()


@contextmanager
def _spark_home_set(home: Path) -> Iterator[None]:
    """Set SPARK_HOME within the `with` block, so that pyspark starts this Spark's JVM."""
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_HOME"]
        else:
            os.environ["SPARK_HOME"] = before


def _write(place: Path, classes: dict[str, bytes]) -> None:
    """Write the jar whole or not at all: another process may do the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for path, code in sorted(classes.items()):
            made.writestr(path, code)
        made.writestr(_SERVICE, f"{CLASS}\n")
    os.replace(name, place)
