"""Row steps of a subscription: their order, tables, what does not fit, what must not leak."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError
from ray_canal.offline import decode_files
from ray_canal.views.masking import Keep
from ray_canal.views.transform import Transform
from tests.unit.views.changes import batch_of

COLUMNS = {"id": pa.int32(), "name": pa.string(), "phone": pa.string(), "Total": pa.int64()}
ANN = {"id": 1, "name": "Ann", "phone": "0123456789", "Total": 10}
BOB = {"id": 2, "name": "Bob", "phone": None, "Total": 200}


def orders(name: str = "shop.orders") -> pa.RecordBatch:
    rows = [(None, ANN), (ANN, BOB), (BOB, None)]
    return batch_of(COLUMNS, rows, name, keys=["id"])


def images(batch: pa.RecordBatch) -> list[tuple[Any, Any]]:
    return [(row["before"], row["after"]) for row in batch.to_pylist()]


def test_the_predicate_sees_what_the_others_hide() -> None:
    steps = Transform(
        where="after.total > 100 OR before.phone IS NULL",
        columns=["ID", "phone", "name"],
        mask={"phone": Keep(last=2)},
        hash={"name": ""},
    )
    found = steps.applied(orders())
    hashed = {n: hashlib.sha256(n.encode()).hexdigest() for n in ("Ann", "Bob")}
    ann = {"id": 1, "name": hashed["Ann"], "phone": "********89"}
    bob = {"id": 2, "name": hashed["Bob"], "phone": None}
    assert images(found) == [(None, ann), (ann, bob), (bob, None)]
    assert found.schema == steps.schema(orders().schema)
    assert images(Transform(where="after.total > 100").applied(orders())) == [(ANN, BOB)]
    found.validate(full=True)


def test_nothing_asked_for_is_nothing_done() -> None:
    assert not Transform()
    assert not Transform(where="", columns=[], mask={}, hash={})
    batch = orders()
    assert Transform(where="TRUE").applied(batch) is batch
    assert Transform(where="FALSE").applied(batch).num_rows == 0


def test_a_slice_is_what_it_shows() -> None:
    steps = Transform(mask={"name": "?"}, hash={"phone": "k"})
    whole = steps.applied(orders())
    assert images(steps.applied(orders().slice(1, 2))) == images(whole)[1:]


def test_by_table_the_first_pattern_counts() -> None:
    steps = Transform(
        where={r"shop\.orders": "after.total > 100", r"shop\..*": "after.id = 1"},
        mask={r"crm\..*": {"name": None}},
        columns={r".*\.people": ["name"]},
    )
    assert images(steps.applied(orders())) == [(ANN, BOB)]
    assert images(steps.applied(orders("shop.other"))) == [(None, ANN)]
    people = images(steps.applied(orders("crm.people")))
    assert people == [(None, {"name": None}), ({"name": None},) * 2, ({"name": None}, None)]
    assert images(steps.applied(orders("hr.staff"))) == images(orders())


def test_keys_in_the_metadata_are_columns_that_are_shown() -> None:
    def key(**options: Any) -> bytes:
        found: bytes = Transform(**options).applied(orders()).schema.metadata[b"canal.key"]
        return found

    assert key(columns=["id", "name"]) == b'["id"]'
    assert key(columns=["name"]) == b"[]"
    assert key(mask={"name": "x"}) == b'["id"]'


def test_json_diffs_do_not_tell_what_is_hidden() -> None:
    diff = pa.array(['{"doc": []}'] * 3)
    batch = orders().append_column(pa.field("json_diff", pa.string()), diff)
    assert "json_diff" in Transform(where="TRUE").applied(batch).schema.names
    for options in ({"columns": ["id"]}, {"mask": {"name": None}}, {"hash": {"name": ""}}):
        assert "json_diff" not in Transform(**options).applied(batch).schema.names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "after.totl > 1"}, "shop.orders: where after.totl > 1: there is no column"),
        ({"columns": ["id", "nam"]}, "shop.orders: columns: there is no column nam; did you mean"),
        ({"mask": {"phon": None}}, "mask: there is no column phon; did you mean phone?"),
        ({"hash": {"mail": ""}}, "hash: there is no column mail"),
        ({"mask": {"id": "x"}}, "mask of id: 'x' is no int32"),
        ({"mask": {"name": None}, "hash": {"NAME": ""}}, "name is both masked and hashed"),
    ],
)
def test_what_does_not_fit_a_table_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Transform(**options).applied(orders())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "after. >"}, "is no SQL expression"),
        ({"where": "after.total ="}, "is no SQL expression: an operand is missing"),
        ({"where": {"(": "TRUE"}}, "is not a regular expression"),
        ({"mask": {"name": "x", r"shop\..*": {"id": 0}}}, "not both in one option"),
        ({"columns": {r"shop\..*": "id"}}, "expected a list of names"),
        ({"columns": "id"}, "expected a list of names"),
    ],
)
def test_what_cannot_be_read_is_told_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Transform(**options)


def test_real_changes() -> None:
    """The bundled files: a predicate is what a loop over rows would choose."""
    steps = Transform(
        where="NOT (before.status <=> after.status) AND event_type <> 'DELETE'",
        hash={"customer_id": "k"},
    )
    seen = 0
    for batch in decode_files(binlog_files(), tables=r"shop\.orders"):
        found = steps.applied(batch)
        wanted = [
            row["position"]
            for row in batch.to_pylist()
            if row["event_type"] != "DELETE"
            and (row["before"] or {}).get("status") != (row["after"] or {}).get("status")
        ]
        assert found["position"].to_pylist() == wanted
        assert found.schema == steps.schema(batch.schema)
        seen += len(wanted)
    assert seen
