"""Texts as Arrow arrays of bytes, put together by vectors: no Python object a value."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.model.arrays import Bytes, Int64s

BYTES = pa.large_binary()

_CONTROLS = [*range(32)]
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r"}
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_LETTERS: Bytes = np.frombuffer(_ALPHABET, np.uint8)


def scalar(text: bytes) -> pa.Scalar:
    """Return a text as an Arrow scalar of bytes."""
    return pa.scalar(text, BYTES)


def joined(*pieces: pa.Array | bytes) -> pa.Array:
    """Return the pieces one after the other, in every row; null where one of them is."""
    given = [scalar(piece) if isinstance(piece, bytes) else piece for piece in pieces]
    return pc.binary_join_element_wise(*given, scalar(b""))


def wrapped(texts: pa.Array, before: bytes, after: bytes) -> pa.Array:
    """Return texts with something around each; null stays null."""
    return joined(before, texts, after)


def decimal_texts(numbers: pa.Array) -> pa.Array:
    """Return decimals as text with all their digits, as MySQL shows them; null stays null. Arrow
    has `0E-30` for a zero."""
    texts = numbers.cast(pa.string())
    short = pc.match_substring(texts, "E").fill_null(False)
    if not pc.any(short).as_py():
        return texts
    words = texts.filter(short).dictionary_encode()
    written = [format(Decimal(text), "f") for text in words.dictionary.to_pylist()]
    return pc.replace_with_mask(texts, short, pa.array(written, pa.string()).take(words.indices))


def json_texts(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings, quotes included; null stays null."""
    found = pc.replace_substring(texts.cast(BYTES), b"\\", b"\\\\")
    found = pc.replace_substring(found, b'"', b'\\"')
    if pc.any(pc.match_substring_regex(found, r"[\x00-\x1f]")).as_py():
        for code in _CONTROLS:
            escaped = _SHORT.get(code, b"\\u%04x" % code)
            found = pc.replace_substring(found, bytes([code]), escaped)
    return wrapped(found, b'"', b'"')


def parts_of(values: pa.Array) -> tuple[Bytes, Int64s]:
    """Return the bytes of binary values or texts, and the offsets of each in them."""
    large = values.cast(BYTES)
    _, places, data = large.buffers()
    offsets = np.frombuffer(places, np.int64)[large.offset : large.offset + len(large) + 1]
    return np.frombuffer(data or b"", np.uint8), offsets


def of_parts(data: Bytes, offsets: Int64s, null: pa.Array | None = None) -> pa.Array:
    """Return bytes between offsets as an array; null where `null` is true."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    found = pa.Array.from_buffers(BYTES, len(offsets) - 1, buffers)
    return found if null is None else pc.if_else(null, pa.scalar(None, BYTES), found)


def without_first(values: pa.Array, count: int) -> pa.Array:
    """Return binary values without their first bytes; null stays null. (Arrow's binary_slice fails
    where a value is shorter.)"""
    data, offsets = parts_of(values)
    sizes = np.maximum(np.diff(offsets) - count, 0)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    shift = np.repeat(offsets[1:] - ends[1:], sizes)
    return of_parts(data[np.arange(ends[-1]) + shift], ends, values.is_null())


def base64_texts(values: pa.Array) -> pa.Array:
    """Return binary values in base64; null stays null."""
    data, offsets = parts_of(values)
    sizes = np.diff(offsets)
    groups = (sizes + 2) // 3
    ends = np.cumsum(groups)
    padded: Bytes = np.zeros(3 * int(ends[-1]) if len(ends) else 0, np.uint8)
    shift = np.repeat(3 * (ends - groups) - offsets[:-1], sizes)
    padded[np.arange(offsets[0], offsets[-1]) + shift] = data[offsets[0] : offsets[-1]]
    triples = padded.reshape(-1, 3).astype(np.uint32)
    words = triples[:, 0] << 16 | triples[:, 1] << 8 | triples[:, 2]
    letters = _LETTERS[(words[:, None] >> np.array([18, 12, 6, 0], np.uint32)) & 63]
    out: Bytes = np.ascontiguousarray(letters).reshape(-1)
    short = 3 * groups - sizes  # 0, 1 or 2 bytes are missing
    out[4 * ends[short > 0] - 1] = 61
    out[4 * ends[short > 1] - 2] = 61
    return of_parts(out, 4 * np.concatenate([[0], ends]), values.is_null())
