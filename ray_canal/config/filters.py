"""[instance.filter]: which tables, columns and kinds of events pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import ValidationError, model_validator

from ray_canal.config.section import Section, explained
from ray_canal.errors import ConfigError
from ray_canal.filter import (
    EventFilter,
    FieldFilter,
    TableFilter,
    plain_name,
    split_patterns,
    without_common,
)


class FilterConfig(Section):
    """Settings of [instance.filter], what passes (canal.instance.filter.*): tables in Canal's regex
    grammar, columns, kinds."""

    tables: str = r".*\..*"
    black_tables: str = r"mysql\.slave_.*"
    # What a subscriber's own list does: "narrow": both lists must admit a table; "replace": it
    # takes the place of `tables`, as Canal has it, so rows of all tables but the black ones are
    # decoded.
    subscribers: Literal["narrow", "replace"] = "narrow"
    # Columns, `schema.table:column/column,…` (canal.instance.filter.field / .black.field).
    fields: str = ""
    black_fields: str = ""
    # Each drops; Canal's names with an underscore for the dot.
    query_dcl: bool = False
    query_dml: bool = False
    query_ddl: bool = False
    dml_insert: bool = False
    dml_update: bool = False
    dml_delete: bool = False
    rows: bool = False
    transaction_entry: bool = False
    table_error: bool = False

    @model_validator(mode="after")
    def _grammar(self) -> FilterConfig:
        TableFilter(self.tables, self.black_tables)
        FieldFilter(self.fields, self.black_fields)
        return self

    def changed(self, changes: Mapping[str, object]) -> FilterConfig:
        """Return a copy with these keys changed. Raises ConfigError."""
        try:
            return FilterConfig.model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            raise ConfigError(f"instance.filter: {explained(error, FilterConfig)}") from None

    def hiding(self, tables: str) -> FilterConfig:
        """Return a copy with more tables in its black list (a list in its grammar)."""
        known = self.black_tables
        if not tables or tables in known:
            return self
        return self.model_copy(update={"black_tables": f"{known},{tables}" if known else tables})

    def of_subscriber(self, tables: str) -> TableFilter:
        """Return the filter of a subscriber with this list of tables; with an empty one, the
        destination's. Raises ConfigError: it is no list."""
        if self.subscribers == "replace":
            return TableFilter(tables or self.tables, self.black_tables)
        return TableFilter(tables, self.black_tables, within=self.tables)

    def hidden_of(self, tables: str) -> list[str]:
        """Return the patterns of a subscriber's list that cannot match any table which passes."""
        passes = self.of_subscriber(tables)
        patterns = split_patterns(tables)
        names = {pattern: plain_name(pattern) for pattern in patterns}
        hidden = {each for each, name in names.items() if name and not passes.admits(*name)}
        if self.subscribers == "narrow":
            others = [pattern for pattern in patterns if names[pattern] is None]
            hidden.update(without_common(others, self.tables))
        return [pattern for pattern in patterns if pattern in hidden]

    def event_filter(self) -> EventFilter:
        """Return what is dropped before rows are decoded; all but `transaction_entry`."""
        tables = "" if self.subscribers == "replace" else self.tables
        return EventFilter(
            TableFilter(tables, self.black_tables),
            query_dcl=self.query_dcl,
            query_dml=self.query_dml,
            query_ddl=self.query_ddl,
            rows=self.rows,
            dml_insert=self.dml_insert,
            dml_update=self.dml_update,
            dml_delete=self.dml_delete,
            table_error=self.table_error,
        )
