"""Parquet files written by Ray tasks with Arrow, as Spark writes them and several times as fast.

For folders that every node sees under the same path. Names and layout are those of Spark's
`partitionBy`; the files carry Spark's own schema, so that it reads each column as it was.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import ray
from pyspark import __version__ as SPARK_VERSION

from ray_canal.errors import CanalError
from ray_canal.spark.chunks import divided
from ray_canal.spark.frames import common_schema, with_notes
from ray_canal.spark.lacking import told
from ray_canal.spark.schema import readable_batch, schema_json
from ray_canal.spark.tasks import results

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION = b"org.apache.spark.version"
"""Without it Spark 3.5 takes dates before 1582 for those of another calendar, and refuses them."""
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
"""Characters that Spark writes as %XX in names of folders (ExternalCatalogUtils)."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one table version, and the folder and number of their files."""

    batches: list[pa.RecordBatch]
    schema: pa.Schema
    folder: Path
    number: int


def task_folder(path: str) -> Path | None:
    """The folder in which Ray tasks can write; None: the path is of another file system, or there
    is no Ray, and Spark writes."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file") or not ray.is_initialized():
        return None
    return Path(os.path.abspath(unquote(parts.path) if parts.scheme else path))


def stage_by_tasks(
    folder: Path, tables: Mapping[str, Sequence[pa.RecordBatch]], width: int
) -> None:
    """Write each table's rows (`schema.table`) as Parquet files below
    `folder/NUMBER-SHAPE/schema_name=…/…`, by `width` Ray tasks at once.

    Raises what a task raised; CanalError: not every row was written."""
    parts = []
    for number, (name, batches) in enumerate(sorted(tables.items())):
        shown = [with_notes(batch) for batch in batches]
        schema = _storable(common_schema(shown))
        shown = [told(batch, schema) for batch in shown]
        shape = hashlib.sha256(schema_json(schema).encode()).hexdigest()[:8]
        schema_name, _, table = name.partition(".")
        below = f"schema_name={_escaped(schema_name)}/table_name={_escaped(table)}"
        where = folder / f"{number}-{shape}" / below
        parts += [
            _Part(rows, schema, where, part) for part, rows in enumerate(divided(shown, width))
        ]
    written = sum(results(_write, parts, width))
    wanted = sum(batch.num_rows for batches in tables.values() for batch in batches)
    if written != wanted:
        raise CanalError(f"{written} of {wanted} rows were written below {folder}")


def _storable(schema: pa.Schema) -> pa.Schema:
    """Parquet has no structs without fields: of a table whose columns are not known."""
    kept = [f for f in schema if not (pa.types.is_struct(f.type) and not f.type.num_fields)]
    return pa.schema(kept, schema.metadata)


def _write(given: _Part) -> int:
    """A task: a file for each day. Return how many rows they have."""
    schema, part = given.schema, given.number
    notes = {_SPARK_SCHEMA: schema_json(schema).encode(), _SPARK_VERSION: SPARK_VERSION.encode()}
    table = _table(given.batches, schema)
    days = pc.cast(table["execute_time"].cast(pa.timestamp("us")), pa.date32())
    for day in pc.unique(days):
        whole = pc.all(pc.equal(days, day)).as_py()
        rows = table if whole else table.filter(pc.equal(days, day))
        where = given.folder / f"date={day.as_py().isoformat()}"
        where.mkdir(parents=True, exist_ok=True)
        # Under a hidden name until it is whole: a task that was killed is run again.
        hidden = where / f".{part:04}-{os.getpid()}"
        pq.write_table(
            rows.replace_schema_metadata(notes),
            hidden,
            compression="snappy",
            use_dictionary=_texts("", schema),
        )
        hidden.replace(where / f"part-{part:04}.parquet")
    return int(table.num_rows)


def _texts(above: str, fields: Iterable[pa.Field]) -> list[str]:
    """Paths of the columns that are written by a dictionary: of numbers and times most would
    outgrow theirs, which costs a quarter of the CPU, and snappy finds what repeats."""
    found = []
    for field in fields:
        if pa.types.is_struct(field.type):
            found += _texts(f"{above}{field.name}.", field.type)
        elif pa.types.is_string(field.type):
            found.append(above + field.name)
    return found


def _table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The batches in one schema. Texts that are dictionaries in all of them stay so: the writer
    need not look for equal ones, and Spark reads text."""
    kept = {
        name
        for name in schema.names
        if all(name in b.schema.names and _is_words(b.schema.field(name).type) for b in batches)
    }
    types = [_WORDS if field.name in kept else field.type for field in schema]
    fields = [field.with_type(type) for field, type in zip(schema, types, strict=True)]
    rest = pa.schema([field for field in schema if field.name not in kept])
    shown = []
    for batch in batches:
        columns = dict(zip(rest.names, readable_batch(batch, rest).columns, strict=True))
        columns |= {name: _words(batch.column(name)) for name in kept}
        shown.append(
            pa.RecordBatch.from_arrays([columns[n] for n in schema.names], schema=pa.schema(fields))
        )
    return pa.Table.from_batches(shown).unify_dictionaries()


_WORDS = pa.dictionary(pa.int32(), pa.string())


def _is_words(given: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(given) and given.value_type == pa.string())


def _words(array: pa.DictionaryArray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)


def _escaped(name: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in name)
