"""Change events against those that Debezium 3.6.3 made of the same log (debezium/messages.jsonl,
written by tests/record_debezium.py). What differs is in docs/reference/debezium.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ray_canal.offline import decode_debezium
from ray_canal.views.debezium import DebeziumOptions

FOLDER = Path(__file__).parent / "debezium"
ENVELOPES_ALONE = {"ts_ms", "ts_us", "ts_ns"}
"""When the message was made."""
SOURCES_ALONE = {"version", "thread"}
OTHERS = {"y": (1900, 0), "du": (11323, -719162)}
"""Debezium's value and ours: YEAR 0; 0001-01-01, a year of two digits to Debezium."""
JSON_COLUMNS = {"js", "j2"}
OPAQUE = {"d": "a DATETIME", "t": "a TIME", "b": "bytes"}
"""Members of a JSON value whose types JSON does not have: here they are what SELECT shows."""

Line = dict[str, Any]


def debeziums() -> list[Line]:
    lines = (FOLDER / "messages.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def ours(*, schemas: bool) -> list[Line]:
    options = DebeziumOptions(prefix="p", schemas=schemas, ts_us=1)
    lines = decode_debezium([FOLDER / "mysql-bin.000001"], options)
    return [json.loads(line) for line in lines]


def test_messages_are_debeziums() -> None:
    theirs = [line for line in debeziums() if "message" in line]
    found = ours(schemas=False)
    assert len(found) == len(theirs)
    for wanted, line in zip(theirs, found, strict=True):
        assert (line["topic"], line["key"]) == (wanted["topic"], wanted["key"])
        assert comparable(line["message"]) == comparable(wanted["message"])


def comparable(message: Line | None) -> Line | None:
    if message is None:
        return None
    found = {name: value for name, value in message.items() if name not in ENVELOPES_ALONE}
    source = message["source"].items()
    found["source"] = {name: value for name, value in source if name not in SOURCES_ALONE}
    for side in ("before", "after"):
        row = message[side]
        found[side] = row and {name: comparable_value(name, row[name]) for name in row}
    return found


def comparable_value(name: str, value: Any) -> Any:
    if name in JSON_COLUMNS and value is not None:
        found = json.loads(value)
        is_mixed = isinstance(found, dict) and set(OPAQUE) < set(found)
        return {**found, **OPAQUE} if is_mixed else found
    theirs, own = OTHERS.get(name, (None, None))
    return own if value == theirs else value


def test_schemas_are_debeziums() -> None:
    known = {}
    for line in ours(schemas=True):
        if line["message"] is not None:
            schemas = line["key"] and line["key"]["schema"], line["message"]["schema"]
            known.setdefault(line["topic"], schemas)
    wanted = [line for line in debeziums() if "schema" in line]
    assert {line["topic"] for line in wanted} == set(known)
    for line in wanted:
        key, value = known[line["topic"]]
        assert plain(value) == plain(line["schema"])
        if line["key_schema"] is None:
            assert key is None
        else:
            assert sorted_fields(key) == sorted_fields(line["key_schema"])


def plain(schema: Line) -> Line:
    """Without columns' defaults; dates that must not be null like others."""
    found = {name: value for name, value in schema.items() if name != "default"}
    if found.get("name", "").startswith("io.debezium.time."):
        found["optional"] = True
    if "fields" in found:
        found["fields"] = [plain(each) for each in found["fields"]]
    return found


def sorted_fields(key: Line) -> Line:
    """Debezium has a key's columns in the order of its index."""
    return {**plain(key), "fields": sorted(plain(key)["fields"], key=lambda each: each["field"])}
