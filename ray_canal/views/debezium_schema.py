"""Schemas of Debezium's messages as Kafka Connect writes them in JSON, for one table version.

A `TableForm` has the fields of a table's rows and of its key. Its schemas are trees of Connect's
JSON format; views/avro.py makes Avro's of the same trees.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ray_canal.model.table_meta import UNIQUE_KEY_NOTE, TableMeta
from ray_canal.views.arrow import arrow_schema
from ray_canal.views.debezium_types import ConnectType, Decimals, kind_of
from ray_canal.views.presence import PRESENT_OF

Tree = dict[str, Any]

_NOT_OF_TOPICS = re.compile(r"[^A-Za-z0-9._-]")
_SNAPSHOT = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


def topic_of(prefix: str, schema: str, table: str) -> str:
    """Return the topic of a table, PREFIX.SCHEMA.TABLE: what no topic's name may have is _, as in
    Debezium."""
    return _NOT_OF_TOPICS.sub("_", f"{prefix}.{schema}.{table}")


@dataclass(frozen=True)
class FormField:
    """A column: its name, type, and whether values may be null."""

    name: str
    kind: ConnectType
    optional: bool


@dataclass(frozen=True)
class TableForm:
    """Schema of the messages of a table version. `topic` is PREFIX.SCHEMA.TABLE."""

    prefix: str
    schema: str
    table: str
    connector: str
    fields: tuple[FormField, ...]
    key: tuple[FormField, ...] = field(default=())

    @property
    def topic(self) -> str:
        """The topic's name, which names its schemas, too."""
        return topic_of(self.prefix, self.schema, self.table)

    def value_schema(self) -> Tree:
        """Return the schema of the envelope, as Kafka Connect's JSON converter writes it."""
        name = self.topic
        rows = [_field_tree(each) for each in self.fields]
        sides = [_struct(f"{name}.Value", rows, side) for side in ("before", "after")]
        stamps = [_plain("int64", name, True) for name in ("ts_ms", "ts_us", "ts_ns")]
        fields = [*sides, _source(self.connector), _TRANSACTION, _plain("string", "op"), *stamps]
        return {**_struct(f"{name}.Envelope", fields, optional=False), "version": 2}

    def key_schema(self) -> Tree | None:
        """Return the schema of keys; None: the table has no key."""
        fields = [_field_tree(each) for each in self.key]
        return _struct(f"{self.topic}.Key", fields, optional=False) if fields else None


@lru_cache(maxsize=512)
def form_of(
    schema: pa.Schema, meta: TableMeta | None, prefix: str, connector: str, decimals: Decimals
) -> TableForm:
    """Return the form of a batch's messages, by its Arrow schema and what the source declares."""
    notes = schema.metadata or {}
    image = schema.field("after").type
    declared = {column.name: column for column in meta.columns} if meta is not None else {}
    kinds = {}
    if meta is not None:
        kinds = {each.name: each.type for each in arrow_schema(meta).field("after").type}
    lacks = any(name in schema.names for name in PRESENT_OF.values())
    fields = []
    for each in image:
        column = declared.get(each.name) if kinds.get(each.name) == each.type else None
        kind = kind_of(each.type, column, decimals)
        optional = column is None or column.nullable or kind.fits_null or lacks
        fields.append(FormField(each.name, kind, optional))
    keys = set(json.loads(notes[b"canal.key"]) or json.loads(notes.get(UNIQUE_KEY_NOTE, b"[]")))
    return TableForm(
        prefix, notes[b"canal.schema"].decode(), notes[b"canal.table"].decode(), connector,
        tuple(fields), tuple(each for each in fields if each.name in keys),
    )  # fmt: skip


def _struct(name: str, fields: list[Tree], place: str = "", *, optional: bool = True) -> Tree:
    tree = {"type": "struct", "fields": fields, "optional": optional, "name": name}
    return {**tree, "field": place} if place else tree


def _plain(kind: str, name: str, optional: bool = False) -> Tree:
    return {"type": kind, "optional": optional, "field": name}


def _field_tree(each: FormField) -> Tree:
    kind, tree = each.kind, _plain(each.kind.connect, each.name, each.optional)
    if kind.fields:
        tree["fields"] = [_plain(each, name, null) for name, each, null in kind.fields]
    if kind.connect == "array":
        tree["items"] = {"type": "float", "optional": False}
    if kind.name:
        tree |= {"name": kind.name, "version": kind.version}
    if kind.doc:
        tree["doc"] = kind.doc
    if kind.parameters:
        tree["parameters"] = dict(kind.parameters)
    return tree


def _source(connector: str) -> Tree:
    fields = [
        *(_plain("string", name) for name in ("version", "connector", "name")),
        _plain("int64", "ts_ms"),
        {**_plain("string", "snapshot", True), "name": "io.debezium.data.Enum", "version": 1,
         "parameters": {"allowed": _SNAPSHOT}, "default": "false"},
        _plain("string", "db"), _plain("string", "sequence", True), _plain("int64", "ts_us", True),
        _plain("int64", "ts_ns", True), _plain("string", "table", True),
        _plain("int64", "server_id"), _plain("string", "gtid", True), _plain("string", "file"),
        _plain("int64", "pos"), _plain("int32", "row"), _plain("int64", "thread", True),
        _plain("string", "query", True),
    ]  # fmt: skip
    name = f"io.debezium.connector.{connector}.Source"
    return {**_struct(name, fields, "source", optional=False), "version": 1}


_TRANSACTION = {
    **_struct(
        "event.block",
        [_plain("string", "id"), _plain("int64", "total_order"),
         _plain("int64", "data_collection_order")],
        "transaction",
    ),
    "version": 1,
}  # fmt: skip

__all__ = ["FormField", "TableForm", "Tree", "form_of", "topic_of"]
