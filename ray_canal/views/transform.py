"""A subscriber's row steps: which rows, which columns, what of them is masked or hashed.

Steps run in the reader's process over whole Arrow batches, in this order: the predicate sees the
values as they are, then columns are left out, then masks and hashes take the values' place, in
before and after alike. Steps are tied to a table's schema when its first batch comes; what does not
fit it is told then, so nothing passes unmasked because of a misspelt name.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from ray_canal.errors import ConfigError
from ray_canal.filter import TableFilter
from ray_canal.model.table_meta import UNIQUE_KEY_NOTE
from ray_canal.views.masking import Hashing, Mask, masked
from ray_canal.views.presence import IMAGES, PRESENT

if TYPE_CHECKING:
    from ray_canal.views.predicate import Predicate

_FITTED_MAX = 1024
_TABLE_NOTES = (b"canal.schema", b"canal.table", b"canal.key", UNIQUE_KEY_NOTE)

Where = str | Mapping[str, str]
Columns = Sequence[str] | Mapping[str, Sequence[str]]
Masks = Mapping[str, Mask] | Mapping[str, Mapping[str, Mask]]
Keys = Mapping[str, str] | Mapping[str, Mapping[str, str]]
"""For every table, or by table: Canal's patterns over `schema.table`, the first that matches."""


class RowSteps(TypedDict, total=False):
    """The steps of one subscription, as keyword arguments.

    `where`: a SQL condition over before and after. `columns`: those that are shown. `mask`: what
    stands in place of a column's values. `hash`: columns whose values are hashed, each with its
    key; empty: a plain SHA-256.
    """

    where: Where | None
    columns: Columns | None
    mask: Masks | None
    hash: Keys | None


@dataclass(frozen=True, slots=True)
class _Rule:
    """One option for the tables that a pattern matches."""

    tables: TableFilter
    value: Any


def _conditions(rules: list[_Rule]) -> list[_Rule]:
    """The rules with their conditions read. SQL's grammar is loaded for them alone. Raises
    ConfigError."""
    if not rules:
        return []
    from ray_canal.views.predicate import parse

    return [_Rule(rule.tables, parse(rule.value)) for rule in rules]


def _predicate(condition: Any, schema: pa.Schema) -> Predicate:
    from ray_canal.views.predicate import Predicate

    return Predicate(condition, schema)


class Transform:
    """The steps of one subscription. `hash` has a column's key, empty for a plain SHA-256. Raises
    ConfigError: an expression or a pattern that cannot be read."""

    def __init__(
        self,
        where: Where | None = None,
        columns: Columns | None = None,
        mask: Masks | None = None,
        hash: Keys | None = None,
    ) -> None:
        self._where = _conditions(_rules(where, isinstance(where, Mapping)))
        self._columns = _rules(columns, isinstance(columns, Mapping))
        self._mask = _rules(mask, _is_by_table(mask))
        self._hash = [
            _Rule(r.tables, {name: Hashing(key.encode()) for name, key in r.value.items()})
            for r in _rules(hash, _is_by_table(hash))
        ]
        for rule in self._columns:
            if isinstance(rule.value, str):
                raise ConfigError(f"columns {rule.value!r}: expected a list of names")
        self._fitted: dict[Any, _Fitted] = {}

    def __bool__(self) -> bool:
        return bool(self._where or self._columns or self._mask or self._hash)

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch after all steps; it may have no rows. Raises ConfigError: a step does not fit
        the table's schema."""
        return self._fit(batch.schema).applied(batch)

    def applied_to_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same, of a batch of changes of a table as a whole (views/table_events.py): conditions
        on images, of which it has none, do not leave it out."""
        if not batch.schema.field("after").type.num_fields:
            return batch  # its columns are not known
        notes = batch.schema.metadata
        plain = {key: notes[key] for key in _TABLE_NOTES if key in notes}
        fitted = self._fit(batch.schema.with_metadata(plain))
        found = fitted.applied(batch.replace_schema_metadata(plain), of_rows=False)
        return found.replace_schema_metadata({**notes, **found.schema.metadata})

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the transformed schema of a table's. Raises ConfigError as `applied` does."""
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
        return self._fit(schema).applied(empty).schema

    def _fit(self, schema: pa.Schema) -> _Fitted:
        found = self._fitted.get(schema)
        if found is None:
            if len(self._fitted) >= _FITTED_MAX:
                self._fitted.clear()
            found = self._fitted[schema] = self._made(schema)
        return found

    def _made(self, schema: pa.Schema) -> _Fitted:
        names = [schema.metadata[key].decode() for key in (b"canal.schema", b"canal.table")]
        try:
            where, columns, mask, hashing = (
                next((rule.value for rule in rules if rule.tables.admits(*names)), None)
                for rules in (self._where, self._columns, self._mask, self._hash)
            )
            return _Fitted(
                schema,
                None if where is None else _predicate(where, schema),
                columns,
                mask or {},
                hashing or {},
            )
        except ConfigError as error:
            raise ConfigError(f"{'.'.join(names)}: {error}") from None


class _Fitted:
    """The steps of one table version."""

    def __init__(
        self,
        schema: pa.Schema,
        where: Predicate | None,
        columns: Sequence[str] | None,
        mask: Mapping[str, Mask],
        hashing: Mapping[str, Hashing],
    ) -> None:
        self._where = where
        known = [field.name for field in schema.field("after").type]
        self._shown = None if columns is None else {_known(c, known, "columns") for c in columns}
        self._mask = {_known(name, known, "mask"): value for name, value in mask.items()}
        self._hash = {_known(name, known, "hash"): value for name, value in hashing.items()}
        both = self._mask.keys() & self._hash.keys()
        if both:
            raise ConfigError(f"{sorted(both)[0]} is both masked and hashed")
        self._images = self._shown is not None or bool(self._mask or self._hash)

    def applied(self, batch: pa.RecordBatch, of_rows: bool = True) -> pa.RecordBatch:
        if self._where is not None and (of_rows or not self._where.asks_for_images):
            batch = self._where.filtered(batch)
        if not self._images:
            return batch
        columns = [
            self._changed(field.name, column)
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        fields = [
            field.with_type(column.type)
            for field, column in zip(batch.schema, columns, strict=True)
        ]
        # What a partial JSON update changed must not tell what is hidden.
        keep = [k for k, field in enumerate(fields) if field.name != "json_diff"]
        schema = pa.schema([fields[k] for k in keep], self._metadata(batch.schema.metadata))
        return pa.RecordBatch.from_arrays([columns[k] for k in keep], schema=schema)

    def _changed(self, name: str, column: pa.Array) -> pa.Array:
        if name in IMAGES:
            return self._image(column)
        return self._flags(column) if name in PRESENT else column

    def _flags(self, present: pa.StructArray) -> pa.StructArray:
        """Return which of the shown columns an image has."""
        if self._shown is None:
            return present
        chosen = [k for k, field in enumerate(present.type) if field.name in self._shown]
        if not chosen:
            return pa.nulls(len(present), pa.struct([]))
        children = [present.field(k) for k in chosen]
        fields = [present.type.field(k) for k in chosen]
        return pa.StructArray.from_arrays(children, fields=fields, mask=present.is_null())

    def _image(self, image: pa.StructArray) -> pa.StructArray:
        fields, children = [], []
        for number, field in enumerate(image.type):
            if self._shown is not None and field.name not in self._shown:
                continue
            child = image.field(number)
            if field.name in self._mask:
                child = masked(child, self._mask[field.name], field.name)
            elif field.name in self._hash:
                child = self._hash[field.name].hashed(child, field.name)
            children.append(child)
            fields.append(field.with_type(child.type))
        if not fields:
            return pa.nulls(len(image), pa.struct([]))
        return pa.StructArray.from_arrays(children, fields=fields, mask=image.is_null())

    def _metadata(self, metadata: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """The table's notes; its key without columns that are not shown."""
        if self._shown is None:
            return metadata
        keys = [name for name in json.loads(metadata[b"canal.key"]) if name in self._shown]
        return {**metadata, b"canal.key": json.dumps(keys).encode()}


def _known(name: str, known: Sequence[str], step: str) -> str:
    """The column's own spelling. Raises ConfigError: the table has no such column."""
    if name in known:
        return name
    folded = [column for column in known if column.lower() == name.lower()]
    if len(folded) == 1:
        return folded[0]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{step}: there is no column {name}{hint}")


def _is_by_table(option: Mapping[str, Any] | None) -> bool:
    """Tell if a mapping has columns by table. Raises ConfigError: it has both."""
    inner = [isinstance(value, Mapping) for value in (option or {}).values()]
    if any(inner) and not all(inner):
        raise ConfigError("give columns for all tables, or by table, not both in one option")
    return any(inner)


def _rules(option: Any, by_table: bool) -> list[_Rule]:
    if not option:
        return []
    if not by_table:
        return [_Rule(TableFilter(), option)]
    return [_Rule(TableFilter(pattern), value) for pattern, value in option.items()]
