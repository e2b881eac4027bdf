"""Hadoop's file systems as the port of spark/commits.py: whatever path Spark knows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """The folder `root` of the file system that it names, or of the default one."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        context = spark.sparkContext
        self._jvm = context._jvm
        self._root = self._jvm.org.apache.hadoop.fs.Path(root)
        self._system = self._root.getFileSystem(context._jsc.hadoopConfiguration())
        self._root = self._system.makeQualified(self._root)

    def exists(self, path: str) -> bool:
        """Return whether there is such a file."""
        return bool(self._system.exists(self._at(path)))

    def names(self, folder: str) -> list[str]:
        at = self._at(folder)
        if not self._system.exists(at):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(at))

    def below(self, folder: str) -> list[str]:
        at = self._at(folder)
        if not self._system.exists(at):
            return []
        base = at.toString().rstrip("/") + "/"
        listing, found = self._system.listFiles(at, True), []
        while listing.hasNext():
            found.append(str(listing.next().getPath().toString()).removeprefix(base))
        return sorted(found)

    def read(self, path: str) -> bytes:
        stream = self._system.open(self._at(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        stream = self._system.create(self._at(path), False)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()

    def move(self, source: str, target: str) -> None:
        to = self._at(target)
        # A local disk would replace it, HDFS says false, others either.
        if self._system.exists(to):
            raise FileExistsError(f"{to.toString()} exists")
        self._system.mkdirs(to.getParent())
        if not self._system.rename(self._at(source), to):
            raise OSError(f"cannot rename {self._at(source).toString()} to {to.toString()}")

    def delete(self, path: str) -> None:
        at = self._at(path)
        if not self._system.delete(at, True) and self._system.exists(at):
            raise OSError(f"cannot delete {at.toString()}")

    def full(self, path: str) -> str:
        """The path as Spark takes it."""
        return str(self._at(path).toString())

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)
