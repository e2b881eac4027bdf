"""What queries mean to the cutter and to the walker."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ray_canal.kernels.framing import query as q


def body_of(sql: str, schema: bytes = b"db", status: bytes = b"\0\0\0\0\0") -> bytes:
    fixed = struct.pack("<IIBHH", 7, 0, len(schema), 0, len(status))
    return fixed + status + schema + b"\0" + sql.encode()


def asked(sql: str) -> tuple[int, int]:
    data = np.frombuffer(b"....." + body_of(sql), np.uint8)
    return q.effect_of_query(data, 5, data.size), q.entry_of_query(data, 5, data.size)


@pytest.mark.parametrize(
    ("sql", "effect", "entry"),
    [
        ("BEGIN", q.BEGINS, q.KIND_BEGIN),
        ("begin", q.BEGINS, q.KIND_BEGIN),
        ("BEGIN;", q.BEGINS, q.KIND_BEGIN),
        ("/* c */ BEGIN", q.BEGINS, q.KIND_SPECIAL),
        ("COMMIT", q.ENDS, q.KIND_END),
        ("COMMIT ;", q.ENDS, q.KIND_END),
        ("ROLLBACK", q.ENDS, q.ROLLS_BACK),
        ("ROLLBACK TO `a`", q.PLAIN, q.KIND_SPECIAL),
        ("ROLLBACK WORK TO SAVEPOINT a", q.PLAIN, q.KIND_SPECIAL),
        ("XA START X'61',X'',1", q.BEGINS, q.XA_BEGINS),
        ("XA END X'61',X'',1", q.XA_ENDED, q.XA_ENDS),
        ("XA COMMIT X'61',X'',1", q.ENDS, q.KIND_SPECIAL),
        ("SAVEPOINT a", q.PLAIN, q.KIND_SPECIAL),
        ("insert into t values (1)", q.PLAIN, q.KIND_SPECIAL),
        ("# c\n-- d\nALTER TABLE t ADD a int", q.SCHEMA, q.KIND_SPECIAL),
        ("/*!50003 BEGIN */", q.SCHEMA, q.KIND_SPECIAL),
        ("", q.SCHEMA, q.KIND_SPECIAL),
    ],
)
def test_a_statement_has_an_effect_and_an_entry(sql: str, effect: int, entry: int) -> None:
    assert asked(sql) == (effect, entry)


@pytest.mark.parametrize("size", [0, 12, 13, 18, 20])
def test_a_body_that_is_too_short_is_left_to_the_parser(size: int) -> None:
    data = np.frombuffer(body_of("BEGIN")[:size], np.uint8)
    assert q.text_of_query(data, 0, size) == -1
    assert q.effect_of_query(data, 0, size) == q.SCHEMA
    assert q.entry_of_query(data, 0, size) == -1
