"""What each of DuckDB's errors means for the sink: again, aside, another schema, or the end."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from ray_canal.sinks.databases.duckdb import _kind, _shown


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT * FROM nowhere", "schema"),
        ("SELECT nothing FROM t", "schema"),
        ("INSERT INTO t VALUES ('no number')", "poison"),
        ("INSERT INTO t VALUES (1)", "poison"),  # it is there already
        ("SELEKT", "fatal"),
    ],
)
def test_errors(sql: str, kind: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(duckdb.Error) as raised:
            connection.execute(sql)
    assert _kind(raised.value) == kind


def test_wide_decimals_are_text_for_it_has_none() -> None:
    wide = pa.chunked_array([pa.array(["1.5", "0", None]).cast(pa.decimal256(60, 9))])
    assert _shown(wide).to_pylist() == ["1.500000000", "0.000000000", None]
    narrow = pa.chunked_array([pa.array(["1.5"]).cast(pa.decimal128(10, 2))])
    assert pa.types.is_decimal128(_shown(narrow).type)
