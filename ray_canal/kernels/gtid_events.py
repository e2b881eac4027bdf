"""GTID events: MySQL's (plain, anonymous, tagged) and MariaDB's, into lines of numbers."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.jit import bare, inlined
from ray_canal.kernels.memory import load8, load32, load64, load_be, load_le, set_word, word

# Columns of `gtids`.
G_AT: Final = 0  # offset of the body
G_POSITION: Final = 1
G_FLAVOR: Final = 2
G_GNO: Final = 3
G_LAST_COMMITTED: Final = 4
G_SEQUENCE: Final = 5
G_COMMIT_US: Final = 6
G_DOMAIN: Final = 7
G_SERVER_ID: Final = 8
G_TAG: Final = 9  # offset of the tag
G_TAG_BYTES: Final = 10
G_UUID: Final = 11  # the source's uuid as two big-endian numbers
G_ORIGINAL_US: Final = 13
G_TIMESTAMP: Final = 14  # of the event's header, seconds
GTID_FIELDS: Final = 15

_ANONYMOUS: Final = 34
_TAGGED: Final = 42
_MARIADB: Final = 162
_UUID_BYTES: Final = 16
_TAG_BYTES_MAX: Final = 32
_LOGICAL_CLOCK: Final = 2
_COMMIT_TIME_MASK: Final = (1 << 55) - 1


@inlined
def _read_plain(data, body, end, gtids, line, mariadb):  # type: ignore[no-untyped-def]
    """Fill the line of `gtids` that begins at `line`; False if the event is too short."""
    set_word(gtids, line + G_AT, body)
    if mariadb:
        if end - body < 13:
            return False
        set_word(gtids, line + G_GNO, load64(data, body))
        set_word(gtids, line + G_DOMAIN, load32(data, body + 8))
        return True
    clock = body + 1 + _UUID_BYTES + 8
    if end < clock:
        return False
    set_word(gtids, line + G_UUID, load_be(data, body + 1, 8))
    set_word(gtids, line + G_UUID + 1, load_be(data, body + 9, 8))
    set_word(gtids, line + G_GNO, load64(data, body + 1 + _UUID_BYTES))
    if end - clock >= 17 and data[clock] == _LOGICAL_CLOCK:
        set_word(gtids, line + G_LAST_COMMITTED, load64(data, clock + 1))
        set_word(gtids, line + G_SEQUENCE, load64(data, clock + 9))
        if end - clock >= 24:
            commit_us = load_le(data, clock + 17, 7)
            set_word(gtids, line + G_COMMIT_US, commit_us & _COMMIT_TIME_MASK)
            set_word(gtids, line + G_ORIGINAL_US, commit_us & _COMMIT_TIME_MASK)
            # Of a transaction that came from another server, that server's time follows.
            if commit_us > _COMMIT_TIME_MASK and end - clock >= 31:
                original_us = load_le(data, clock + 24, 7) & _COMMIT_TIME_MASK
                set_word(gtids, line + G_ORIGINAL_US, original_us)
    return True


@bare
def _packed(data, at, end):  # type: ignore[no-untyped-def]
    """(number, offset behind it) of a number whose first byte's trailing ones say how many bytes
    follow; offset -1: too short."""
    if at >= end:
        return 0, -1
    first = np.int64(data[at])
    more = 0
    while more < 8 and first >> more & 1:
        more += 1
    if end - at < 1 + more:
        return 0, -1
    if more == 8:
        return load64(data, at + 1), at + 9
    if more == 7:
        return load_le(data, at + 1, 7), at + 8
    return load_le(data, at, 1 + more) >> (more + 1), at + 1 + more


@bare
def _read_tagged(data, body, end, gtids, line):  # type: ignore[no-untyped-def]
    """GTID_TAGGED: MySQL's serialised form, fields as number and value, in order of their numbers.

    Format: libs/mysql/serialization of MySQL 8.3 and later.
    """
    version, at = _packed(data, body, end)
    size, at = _packed(data, at, end) if at >= 0 else (0, at)
    _needed, at = _packed(data, at, end) if at >= 0 else (0, at)
    if at < 0 or version != 1 or size > end - body:
        return False
    end = body + size
    seen = 0
    while 0 <= at < end:
        number, at = _packed(data, at, end)
        if at < 0:
            return False
        if number == 1:  # uuid: sixteen numbers
            for k in range(_UUID_BYTES):
                byte, at = _packed(data, at, end)
                if at < 0:
                    return False
                half = line + G_UUID + (k >> 3)
                set_word(gtids, half, word(gtids, half) << 8 | (byte & 255))
        else:
            value, at = _packed(data, at, end)
            if at < 0:
                return False
            signed = (value >> 1) ^ -(value & 1)
            if number == 2:
                set_word(gtids, line + G_GNO, signed)
            elif number == 3:
                if value < 0 or value > _TAG_BYTES_MAX or value > end - at:
                    return False
                set_word(gtids, line + G_TAG, at)
                set_word(gtids, line + G_TAG_BYTES, value)
                at += value
            elif number == 4:
                set_word(gtids, line + G_LAST_COMMITTED, signed)
            elif number == 5:
                set_word(gtids, line + G_SEQUENCE, signed)
            elif number == 6:
                set_word(gtids, line + G_COMMIT_US, value)
                set_word(gtids, line + G_ORIGINAL_US, value)
            elif number == 7:  # where it differs
                set_word(gtids, line + G_ORIGINAL_US, value)
            elif number > 11:
                break  # a later server's addition, which may be ignored
        if number < 4:
            seen |= 1 << number
    return at >= 0 and seen & 0b0110 == 0b0110


@bare
def read_gtid(data, at, body, end, gtids, line):  # type: ignore[no-untyped-def]
    """Fill the line of `gtids`, which come flat, that begins at `line`, but for its position, from
    the event at `at` whose body is data[body:end]; False if that is too short."""
    for field in range(GTID_FIELDS):
        set_word(gtids, line + field, 0)
    kind = data[at + 4]
    set_word(gtids, line + G_TIMESTAMP, load32(data, at))
    set_word(gtids, line + G_SERVER_ID, load32(data, at + 5))
    set_word(gtids, line + G_FLAVOR, 2 if kind == _MARIADB else (0 if kind == _ANONYMOUS else 1))
    if kind == _TAGGED:
        return _read_tagged(data, body, end, gtids, line)
    return _read_plain(data, body, end, gtids, line, kind == _MARIADB)


@inlined
def has_possible_tag(data, gtids, line):  # type: ignore[no-untyped-def]
    """Whether the tag of the GTID in the line of `gtids` that begins at `line`, if it has one, is
    made of a-z, 0-9 and _: of any other no text could be read again."""
    at = word(gtids, line + G_TAG)
    for k in range(at, at + word(gtids, line + G_TAG_BYTES)):
        byte = load8(data, k)
        if not (97 <= byte <= 122 or 48 <= byte <= 57 or byte == 95):
            return False
    return True
