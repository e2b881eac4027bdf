"""Partial JSON updates of a real MySQL 9.7: our after images are what the server SELECTs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import ray_canal as canal
from tests.servers import Server

ROWS, UPDATES, SEED = 40, 350, 20261121
KEYS = ["a", "b", "aa", "key", "é", "b c", 'q"', "back\\slash", "list", "last"]


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 6:
        return rng.choice(
            [None, True, rng.randrange(-9, 9), 2**40, -1.5, "tëxt\n" * rng.randrange(4), ""]
        )
    if kind < 7:
        return [value(rng, depth + 1) for _ in range(rng.randrange(6))]
    return {key: value(rng, depth + 1) for key in rng.sample(KEYS, rng.randrange(1, 6))}


def path(rng: random.Random, document: Any) -> str:
    """Mostly a place that is there, or one next to it."""
    found = "$"
    while not found[1:] or rng.random() < 0.6:
        if isinstance(document, dict):
            key = rng.choice(list(document) if document and rng.random() < 0.8 else KEYS)
            plain = key.isascii() and key.isalpha() and rng.random() < 0.7
            found += f".{key}" if plain else f".{json.dumps(key, ensure_ascii=False)}"
            document = document.get(key)
        elif isinstance(document, list):
            at = rng.randrange(len(document) + 2)
            inside = at < len(document)
            found += rng.choice(
                [f"[{at}]", f"[last-{len(document) - 1 - at}]" if inside else "[0]"]
            )
            document = document[at] if inside else None
        else:
            return found + rng.choice(["", "", "[0]", "[last]", "[1]"])
    return found


def expression(rng: random.Random, document: Any, column: str) -> tuple[str, list[str]]:
    """Nested calls, each of up to three changes."""
    text, arguments = column, []
    for _ in range(rng.randrange(1, 3)):
        name = rng.choice(["SET", "SET", "REPLACE", "REMOVE", "REMOVE", "INSERT", "ARRAY_INSERT"])
        if name == "ARRAY_INSERT":
            places = [path(rng, document) + f"[{rng.randrange(3)}]"]
        else:
            places = [path(rng, document) for _ in range(rng.randrange(1, 4))]
        places = [place if place != "$" else "$.a" for place in places]
        if name == "REMOVE":
            text = f"JSON_REMOVE({text}{', %s' * len(places)})"
            arguments += places
            continue
        special = rng.random() < 0.15
        inside = "CAST('12.50' AS DECIMAL(9,3))" if special else "CAST(%s AS JSON)"
        text = f"JSON_{name}({text}{f', %s, {inside}' * len(places)})"
        for place in places:
            arguments += [place] if special else [place, json.dumps(value(rng))]
    return text, arguments


def test_random_updates(mysql97: Server) -> None:
    rng = random.Random(SEED)
    mysql97.execute(
        "CREATE DATABASE partial_json",
        "CREATE TABLE partial_json.t (id INT PRIMARY KEY, j JSON, n INT, j2 JSON, nothing JSON)",
        "FLUSH BINARY LOGS",
    )
    file = mysql97.binlogs()[-1]
    expected: list[tuple[int, str, str]] = []
    with mysql97.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        for row in range(ROWS):
            # Long enough for the server to find diffs shorter than the whole.
            document = {"pad": "x" * rng.randrange(300), "list": [value(rng) for _ in range(5)]}
            other = json.dumps({key: value(rng) for key in KEYS})
            cursor.execute(
                "INSERT INTO partial_json.t VALUES (%s, %s, 0, %s, NULL)",
                (row, json.dumps(document), other),
            )
        for _ in range(UPDATES):
            row = rng.randrange(ROWS)
            cursor.execute("SELECT j, j2 FROM partial_json.t WHERE id = %s", (row,))
            now = [json.loads(text) for text in cursor.fetchone()]
            changes, arguments = ["n = n + 1"], []
            for column, document in zip(("j", "j2"), now, strict=True):
                if rng.random() < 0.7:
                    text, more = expression(rng, document, column)
                    changes.append(f"{column} = {text}")
                    arguments += more
            statement = f"UPDATE partial_json.t SET {', '.join(changes)} WHERE id = %s"
            cursor.execute(statement, (*arguments, row))
            cursor.execute(
                "SELECT id, CAST(j AS CHAR), CAST(j2 AS CHAR) FROM partial_json.t WHERE id = %s",
                (row,),
            )
            expected.append(cursor.fetchone())
    assert updates(file) == expected


def test_columns_that_are_absent_have_their_bits(mysql97: Server) -> None:
    """MINIMAL without a key: the before image has all columns, the after image what changed."""
    mysql97.execute(
        "CREATE DATABASE partial_keyless",
        "CREATE TABLE partial_keyless.t (a JSON, n INT, b JSON, c JSON)",
        """INSERT INTO partial_keyless.t VALUES ('{"x": 1}', 0, '{"x": 2, "y": "long enough"}',
        '{"x": [3, "long enough"]}')""",
        "FLUSH BINARY LOGS",
    )
    file = mysql97.binlogs()[-1]
    with mysql97.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        cursor.execute("UPDATE partial_keyless.t SET b = JSON_REMOVE(b, '$.x')")
        cursor.execute("UPDATE partial_keyless.t SET c = JSON_SET(c, '$.x[last-1]', 4), n = 1")
    (batch,) = canal.decode_files([file], tables=r"partial_keyless\..*", json_diff=True)
    first, second = batch["after"].to_pylist()
    assert first == {"a": None, "n": None, "b": '{"y": "long enough"}', "c": None}
    assert second == {"a": None, "n": 1, "b": None, "c": '{"x": [4, "long enough"]}'}
    diffs = [json.loads(text) for text in batch["json_diff"].to_pylist()]
    assert diffs[0] == {"b": [{"op": "remove", "path": "$.x"}]}
    assert diffs[1] == {"c": [{"op": "replace", "path": "$.x[last-1]", "value": 4}]}


def updates(file: Path) -> list[tuple[int, str, str]]:
    """The after images of a binlog's updates; and diffs there are many of, or nothing is tested."""
    found: list[Any] = []
    partial = 0
    for batch in canal.decode_files([file], tables=r"partial_json\..*", json_diff=True):
        table = pa.Table.from_batches([batch])
        kinds = table["event_type"].cast(pa.string()).to_pylist()
        rows = zip(kinds, table["after"].to_pylist(), table["json_diff"].to_pylist(), strict=True)
        for kind, after, diff in rows:
            if kind == "UPDATE":
                found.append((after["id"], after["j"], after["j2"]))
                for column, steps in json.loads(diff or "{}").items():
                    assert column in ("j", "j2", "nothing")
                    partial += bool(steps)
                    assert all(step["op"] in ("replace", "insert", "remove") for step in steps)
    assert partial > UPDATES // 4, partial
    return found
