"""JSON diffs on binary documents against the same changes of Python values."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from ray_canal.kernels.json.diff import (
    CORRUPT,
    INSERT,
    NO_SPACE,
    REMOVE,
    REPLACE,
    diffs_text,
)
from ray_canal.kernels.json.patch import patched_text

Diff = tuple[int, str, Any]
_NOTHING = object()

# --- MySQL's binary form, written here by its documentation ------------------------------------


def binary(value: Any) -> bytes:
    kind, body = _typed(value)
    return bytes([kind]) + body


def _typed(value: Any) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        if -(2**15) <= value < 2**15:
            return 5, struct.pack("<h", value)
        return (
            (7, struct.pack("<i", value)) if abs(value) < 2**31 else (9, struct.pack("<q", value))
        )
    if isinstance(value, str):
        data = value.encode()
        size, rest = b"", len(data)
        while rest > 127:
            size, rest = size + bytes([rest & 127 | 128]), rest >> 7
        return 12, size + bytes([rest]) + data
    small = _container(value, 2)
    if small is not None:
        return (0 if isinstance(value, dict) else 2), small
    large = _container(value, 4)
    assert large is not None
    return (1 if isinstance(value, dict) else 3), large


def in_order(value: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(value.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))


def _container(value: Any, width: int) -> bytes | None:
    """None: its offsets need more than `width` bytes."""
    number = {2: "<H", 4: "<I"}[width]
    is_object = isinstance(value, dict)
    keys = [key.encode() for key, _ in in_order(value)] if is_object else []
    items = [item for _, item in in_order(value)] if is_object else value
    at = 2 * width + len(items) * (width + 1) + len(keys) * (width + 2)
    head = key_head = data = b""
    try:
        for key in keys:
            key_head += struct.pack(number, at + len(data)) + struct.pack("<H", len(key))
            data += key
        for item in items:
            kind, body = _typed(item)
            if kind in (4, 5, 6) or (width == 4 and kind in (7, 8)):
                head += bytes([kind]) + body.ljust(width, b"\0")
            else:
                head += bytes([kind]) + struct.pack(number, at + len(data))
                data += body
        return (
            struct.pack(number, len(items))
            + struct.pack(number, at + len(data))
            + (key_head + head + data)
        )
    except struct.error:
        return None


def packed(size: int) -> bytes:
    return bytes([size]) if size < 251 else b"\xfc" + struct.pack("<H", size)


def diff_bytes(diffs: list[Diff]) -> bytes:
    out = b""
    for operation, path, value in diffs:
        out += bytes([operation]) + packed(len(path.encode())) + path.encode()
        if operation != REMOVE:
            body = binary(value)
            out += packed(len(body)) + body
    return out


# --- the kernels, with guards around what they may touch ---------------------------------------


def run(document: bytes, diffs: bytes, space: int) -> str | int:
    source = np.frombuffer(b"\xaa" * 3 + document + b"\xaa\xaa" + diffs + b"\xaa", np.uint8)
    first = 5 + len(document)
    out = np.full(space + 8, 0xEE, np.uint8)
    end = patched_text(
        source, (3, 3 + len(document)), (first, first + len(diffs)), out, 4, 4 + space
    )
    assert (out[:4] == 0xEE).all()
    assert (out[4 + space :] == 0xEE).all(), "wrote behind its end"
    return int(end) if end < 0 else out[4:end].tobytes().decode(errors="replace")


def patched(document: Any, *diffs: Diff, space: int = 1 << 20) -> str | int:
    return run(binary(document), diff_bytes(list(diffs)), space)


def text(value: Any) -> str:
    """As MySQL prints it."""
    if isinstance(value, dict):
        inside = ", ".join(f"{text(key)}: {text(item)}" for key, item in in_order(value))
        return "{" + inside + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\x7f")


# --- the model ---------------------------------------------------------------------------------


def quoted(key: str) -> str:
    return f".{json.dumps(key, ensure_ascii=False)}"


def change(document: Any, rng: random.Random, value: Any) -> Diff | None:
    """Change a random place in a document (in place); the diff that does it."""
    path, here, parent = "$", document, None
    key: Any = None
    while isinstance(here, dict | list) and here and (parent is None or rng.random() < 0.6):
        parent = here
        if isinstance(here, dict):
            key = rng.choice(list(here))
            path += quoted(key)
        else:
            key = rng.randrange(len(here))
            last = f"last-{len(here) - 1 - key}" if key < len(here) - 1 else "last"
            path += rng.choice([f"[{key}]", f"[{last}]"])
        here = here[key]
    if isinstance(here, dict | list) and rng.random() < 0.5:
        if isinstance(here, dict):
            key = rng.choice(["", "b", "aé", "zz", 'k"\\\n', "long name"]) + str(rng.randrange(99))
            if key in here:
                return None
            here[key] = value
            return INSERT, path + quoted(key), value
        at = rng.randrange(len(here) + 3)
        here.insert(at, value)
        return INSERT, f"{path}[{at}]", value
    if parent is None:
        return None
    if rng.random() < 0.4:
        del parent[key]
        return REMOVE, path, _NOTHING
    parent[key] = value
    return REPLACE, path, value


KEYS = st.text(max_size=5) | st.sampled_from(["a", "b", "aa", "é", 'q"', "\\", "\n"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=9)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5)
)


@seed(20261121)
@settings(max_examples=200, deadline=None, database=None)
@given(VALUES, st.lists(VALUES, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_random_changes(document: Any, values: list[Any], rng: random.Random) -> None:
    before = binary(document)
    model = json.loads(json.dumps(document))
    diffs = []
    for value in values:
        diff = change(model, rng, json.loads(json.dumps(value)))
        if diff is not None:
            # The model goes on changing what it holds: keep the value as it is now.
            diffs.append((diff[0], diff[1], json.loads(json.dumps(value))))
    changes = diff_bytes(diffs)
    expected = text(model)
    assert run(before, changes, 1 << 16) == expected
    assert run(before, changes, len(expected.encode())) in (expected, NO_SPACE)


@pytest.mark.parametrize(
    ("document", "diffs", "expected"),
    [
        ({"a": 1}, [(REPLACE, "$.a", 2)], '{"a": 2}'),
        ({"a": 1}, [(REPLACE, "$", [1])], "[1]"),
        ({"b": 1, "aaa": 2}, [(INSERT, "$.c", 3), (INSERT, "$.aa", 4)],
         '{"b": 1, "c": 3, "aa": 4, "aaa": 2}'),
        ({}, [(INSERT, "$.k", []), (INSERT, "$.k[7]", "x")], '{"k": ["x"]}'),
        ([1, 2, 3], [(REMOVE, "$[0]", None), (INSERT, "$[1]", 9)], "[2, 9, 3]"),
        ([1, 2, 3], [(INSERT, "$[last]", 9)], "[1, 2, 9, 3]"),
        ([1, 2, 3], [(INSERT, "$[last-9]", 9)], "[9, 1, 2, 3]"),
        ([1, 2, 3], [(REPLACE, "$[last-2]", 9)], "[9, 2, 3]"),
        ({"a": 1}, [(REPLACE, "$.a[0]", 2)], '{"a": 2}'),
        ({"a": 1}, [(REPLACE, "$.a[last]", 2)], '{"a": 2}'),
        ({"b c": {'"': [0]}}, [(REPLACE, '$."b c"."\\""[0]', True)], '{"b c": {"\\"": [true]}}'),
        ({"é😀": 1}, [(REMOVE, '$."\\u00e9\\ud83d\\ude00"', None)], "{}"),
        ({"x": "y" * 70_000}, [(INSERT, "$.z", 1)], '{"x": "' + "y" * 70_000 + '", "z": 1}'),
        (7, [(REPLACE, "$[0]", 8)], "8"),
    ],
)  # fmt: skip
def test_by_hand(document: Any, diffs: list[Diff], expected: str) -> None:
    assert patched(document, *diffs) == expected


@pytest.mark.parametrize(
    "diff",
    [
        (REPLACE, "$.b", 1), (REMOVE, "$.b", None), (INSERT, "$.a", 1), (REMOVE, "$", None),
        (REPLACE, "$.a.b", 1), (REPLACE, "$.l[2]", 1), (INSERT, "$.a[0]", 1), (INSERT, "$.x.y", 1),
        (INSERT, "$", 1), (REPLACE, "", 1), (REPLACE, "a", 1), (REPLACE, "$.", 1),
        (REPLACE, "$[", 1), (REPLACE, "$.l[x]", 1), (REPLACE, "$.l[las", 1), (REPLACE, '$."a', 1),
        (REPLACE, "$.l[last-", 1), (REPLACE, '$."\\u12"', 1), (REPLACE, "$.l[99999999999]", 1),
        (3, "$.a", 1),
    ],
)  # fmt: skip
def test_diffs_that_do_not_fit_are_told(diff: Diff) -> None:
    assert patched({"a": 1, "l": [1, 2]}, diff) == CORRUPT


def test_no_diffs_leave_the_document() -> None:
    assert patched({"a": [1]}) == '{"a": [1]}'


def test_deep_paths_end() -> None:
    """Values may be nested beyond what MySQL allows by hostile diffs alone."""
    diffs: list[Diff] = [(INSERT, "$" + "[0]" * (depth + 1), []) for depth in range(99)]
    assert patched([], *diffs) == "[" * 100 + "]" * 100
    diffs = [(INSERT, "$" + "[0]" * (depth + 1), []) for depth in range(300)]
    assert patched([], *diffs) == CORRUPT


def test_hostile_bytes() -> None:
    """Bytes changed and cut at random: an answer or an error, and no byte outside touched."""
    rng = random.Random(11)
    document = binary({"a": [1, {"b": "x"}], "key": {"n": None, "s": "text"}, "z": 100_000})
    changes = diff_bytes(
        [(REPLACE, "$.a[1].b", [1, 2]), (INSERT, '$.key."é"', {"d": [3]}), (REMOVE, "$.a[0]", 0),
         (INSERT, '$.key."é".d[last]', "y"), (REPLACE, "$.z", {"q": {"r": 1}})]
    )  # fmt: skip
    assert run(document, changes, 1000) == text(
        {"a": [{"b": [1, 2]}], "key": {"n": None, "s": "text", "é": {"d": ["y", 3]}},
         "z": {"q": {"r": 1}}}
    )  # fmt: skip
    answers = 0
    for _ in range(4_000):
        both = [bytearray(document), bytearray(changes)]
        for _ in range(rng.randrange(1, 5)):
            part = rng.choice(both)
            if part and rng.random() < 0.9:
                part[rng.randrange(len(part))] = rng.randrange(256)
            elif part:
                del part[rng.randrange(len(part)) :]
        answers += isinstance(run(bytes(both[0]), bytes(both[1]), 600), str)
    assert answers > 100


# --- the diffs as text -------------------------------------------------------------------------


def shown(diffs: bytes, space: int = 4096) -> Any:
    source = np.frombuffer(b"\xaa" + diffs + b"\xaa", np.uint8)
    out = np.full(space + 4, 0xEE, np.uint8)
    end = diffs_text(source, 1, 1 + len(diffs), out, 0, space)
    assert (out[space:] == 0xEE).all()
    return int(end) if end < 0 else json.loads(out[:end].tobytes())


def test_diffs_as_text() -> None:
    diffs = diff_bytes(
        [(REPLACE, '$."a b"', {"x": None}), (INSERT, "$.l[2]", "é"), (REMOVE, "$.k", 0)]
    )
    expected = [
        {"op": "replace", "path": '$."a b"', "value": {"x": None}},
        {"op": "insert", "path": "$.l[2]", "value": "é"},
        {"op": "remove", "path": "$.k"},
    ]
    assert shown(diffs) == expected
    assert shown(b"") == []
    for space in range(200):
        assert shown(diffs, space) in (NO_SPACE, expected)
    whole = {0, 23, len(diffs) - 5}
    for size in range(len(diffs)):
        assert (shown(diffs[:size]) == CORRUPT) == (size not in whole)
