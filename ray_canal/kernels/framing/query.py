"""Read QUERY events: where their text is, and what BEGIN, COMMIT, ROLLBACK and XA statements mean.

A query is asked about twice: the cutter wants to know where a chunk may or must
end (`effect_of_query`: it must notice any statement that might change a table's shape), the walker
what entry it becomes (`entry_of_query`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load8, load16, load32

FIXED_BYTES: Final = 13
"""Length of the fixed part of a body: thread, seconds, length of the schema's name, error, length
of status variables."""

# KIND: Canal's EntryType, or a query that Python must look at.
KIND_BEGIN: Final = 1
KIND_ROWS: Final = 2
KIND_END: Final = 3
KIND_SPECIAL: Final = 9

ROLLS_BACK: Final = 4  # a query that is an END, too

# Further meanings of a query: XA's transactions begin and end with queries that have entries of
# their own.
XA_BEGINS: Final = 10
XA_ENDS: Final = 11

# Effects of a query on chunks.
PLAIN: Final = 0
BEGINS: Final = 1
ENDS: Final = 2
SCHEMA: Final = 3
XA_ENDED: Final = 4  # XA END: the transaction's rows end, XA PREPARE still follows


def _word(text: str) -> int:
    return int.from_bytes(text.encode("ascii"), "big")


# First words of statements, up to 8 letters in a number. Statements that change no table's shape
# need no cut after them; any other word ends the chunk, so that a chunk has one version of each
# table.
_BEGI: Final = int.from_bytes(b"BEGI", "little")
_BEGIN: Final = _word("BEGIN")
_COMMIT: Final = _word("COMMIT")
_ROLLBACK: Final = _word("ROLLBACK")
_XA: Final = _word("XA")
_START: Final = _word("START")
_END: Final = _word("END")
_TO: Final = _word("TO")
_WORK: Final = _word("WORK")
_SAVEPOINT: Final = _word("SAVEPOIN")
_RELEASE: Final = _word("RELEASE")
_INSERT: Final = _word("INSERT")
_UPDATE: Final = _word("UPDATE")
_DELETE: Final = _word("DELETE")
_REPLACE: Final = _word("REPLACE")
_BEGIN_TEXT = np.frombuffer(b"BEGIN", np.uint8)
_COMMIT_TEXT = np.frombuffer(b"COMMIT", np.uint8)
_ROLLBACK_TEXT = np.frombuffer(b"ROLLBACK", np.uint8)
_XA_START_TEXT = np.frombuffer(b"XA START ", np.uint8)  # as servers write it
_XA_END_TEXT = np.frombuffer(b"XA END ", np.uint8)
_SAVEPOINT_TEXT = np.frombuffer(b"SAVEPOINT ", np.uint8)
_START_TRANSACTION_TEXT = np.frombuffer(b"START TRANSACTION", np.uint8)


@inlined
def is_annotation(kind):
    """Tell if it is the text of a statement whose rows follow."""
    return kind == ev.ROWS_QUERY or kind == ev.MARIADB_ANNOTATE_ROWS


@inlined
def text_of_query(data, body, end):
    """Return where the statement of a QUERY with this body begins; -1 if the body is too short."""
    if end - body < FIXED_BYTES:
        return -1
    text = body + FIXED_BYTES + load16(data, body + 11) + np.int64(data[body + 8]) + 1
    return text if text <= end else -1


@inlined
def _is_begin(data, at, end):
    """Tell if data[at:end] is BEGIN, in either case: as every transaction has it."""
    if end - at != 5:
        return False
    return load32(data, at) & 0xDFDFDFDF == _BEGI and load8(data, at + 4) & 0xDF == 78


@without_refcounts
def _next_word(text, at, end):
    """Return the next word, up to 8 letters, upper case, as a number, and the offset after it;
    blanks and comments are skipped."""
    while at < end:
        byte = np.int64(text[at])
        if byte <= 32:
            at += 1
        elif byte == 47 and at + 2 < end and text[at + 1] == 42 and text[at + 2] != 33:
            # A comment; one that begins with an exclamation mark is code.
            at += 2
            while at + 1 < end and not (text[at] == 42 and text[at + 1] == 47):
                at += 1
            at += 2
        elif byte == 35 or (byte == 45 and at + 1 < end and text[at + 1] == 45):  # # and --
            while at < end and text[at] != 10:
                at += 1
        else:
            break
    word = 0
    letters = 0
    while at < end:
        byte = np.int64(text[at])
        if 97 <= byte <= 122:
            byte -= 32
        if not 65 <= byte <= 90:
            break
        if letters < 8:
            word = word << 8 | byte
        letters += 1
        at += 1
    return word, at


@without_refcounts
def effect_of_query(buffer, body, end):
    """Return what a query does to chunks: PLAIN, BEGINS, ENDS, SCHEMA or XA_ENDED.

    Comments may stand before and between its words."""
    text = text_of_query(buffer, body, end)
    if text < 0:
        return SCHEMA  # malformed: the parser will say so
    if _is_begin(buffer, text, end):
        return BEGINS
    word, after = _next_word(buffer, text, end)
    if word == _BEGIN:
        return BEGINS
    if word == _COMMIT:
        return ENDS
    if word == _ROLLBACK:
        word, after = _next_word(buffer, after, end)
        if word == _WORK:
            word, after = _next_word(buffer, after, end)
        return PLAIN if word == _TO else ENDS
    if word == _XA:
        word, after = _next_word(buffer, after, end)
        if word == _START or word == _BEGIN:
            return BEGINS
        return XA_ENDED if word == _END else ENDS
    if (
        word == _SAVEPOINT
        or word == _RELEASE
        or word == _INSERT
        or word == _UPDATE
        or word == _DELETE
        or word == _REPLACE
    ):
        return PLAIN
    return SCHEMA


@inlined
def _is_word(data, at, end, word):
    """Tell if data[at:end] is these letters (upper case), in either case."""
    if end - at != word.size:
        return False
    for k in range(word.size):
        if data[at + k] & (0xDF if word[k] > 64 else 0xFF) != word[k]:
            return False
    return True


@without_refcounts
def entry_of_query(data, body, end):
    """Return the entry that a query becomes: KIND_BEGIN, KIND_END, ROLLS_BACK, XA_BEGINS, XA_ENDS
    or KIND_SPECIAL; -1 if it is too short. Only whole statements as servers write them count."""
    text = text_of_query(data, body, end)
    if text < 0:
        return -1
    if _is_begin(data, text, end):
        return KIND_BEGIN
    while end > text and (data[end - 1] <= 32 or data[end - 1] == 59):  # blanks, semicolons
        end -= 1
    if _is_word(data, text, end, _BEGIN_TEXT):
        return KIND_BEGIN
    if _is_word(data, text, end, _COMMIT_TEXT):
        return KIND_END
    if _is_word(data, text, end, _ROLLBACK_TEXT):
        return ROLLS_BACK
    if _is_word(data, text, min(end, text + _XA_START_TEXT.size), _XA_START_TEXT):
        return XA_BEGINS
    if _is_word(data, text, min(end, text + _XA_END_TEXT.size), _XA_END_TEXT):
        return XA_ENDS
    return KIND_SPECIAL


@without_refcounts
def is_savepoint(data, body, end):
    """Tell if it is a SAVEPOINT as servers write it: there may be several a transaction."""
    text = text_of_query(data, body, end)
    behind = min(end, text + _SAVEPOINT_TEXT.size)
    return text >= 0 and _is_word(data, text, behind, _SAVEPOINT_TEXT)


@without_refcounts
def opens_transaction(data, body, end):
    """Tell if it is MySQL's atomic CREATE TABLE … SELECT: its rows follow, under one XID."""
    start = end - _START_TRANSACTION_TEXT.size
    return start >= body and _is_word(data, start, end, _START_TRANSACTION_TEXT)
