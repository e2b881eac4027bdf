"""Read GTID events, MySQL's (plain, anonymous, tagged) and MariaDB's, into the bytes of GTID
records (binlog/chunk.py)."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import (
    clear,
    copy,
    load8,
    load32,
    load64,
    load_le,
    same_bytes,
    store8,
    store32,
    store64,
)

# Offsets in a record.
SID: Final = 0
GNO: Final = 16
LAST_COMMITTED: Final = 24
SEQUENCE_NUMBER: Final = 32
COMMIT_US: Final = 40
ORIGINAL_US: Final = 48
POSITION: Final = 56
DOMAIN: Final = 64
SERVER_ID: Final = 68
FLAVOR: Final = 72
TAG: Final = 73
FOLLOWS: Final = 105
RECORD_BYTES: Final = 106
UUID_BYTES: Final = 16
TAG_BYTES: Final = 32

NO_GTID: Final = 0
MYSQL: Final = 1
MARIADB: Final = 2

# Codes of `read_gtid`.
READ: Final = 0
TOO_SHORT: Final = 1
BAD_TAG: Final = 2

_LOGICAL_CLOCK: Final = 2
_COMMIT_TIME_MASK: Final = (1 << 55) - 1


@inlined
def is_mysql_gtid(kind):
    """Tell if an event of this type is one of MySQL's GTID events."""
    return kind < 64 and ev.MYSQL_GTIDS >> kind & 1 != 0


@inlined
def _read_plain(data, body, end, out, to, mariadb):
    if mariadb:
        if end - body < 13:
            return TOO_SHORT
        store64(out, to + GNO, load64(data, body))
        store32(out, to + DOMAIN, load32(data, body + 8))
        return READ
    clock = body + 1 + UUID_BYTES + 8
    if end < clock:
        return TOO_SHORT
    copy(out, to + SID, data, body + 1, UUID_BYTES)
    store64(out, to + GNO, load64(data, body + 1 + UUID_BYTES))
    if end - clock >= 17 and data[clock] == _LOGICAL_CLOCK:
        store64(out, to + LAST_COMMITTED, load64(data, clock + 1))
        store64(out, to + SEQUENCE_NUMBER, load64(data, clock + 9))
        if end - clock >= 24:
            commit_us = load_le(data, clock + 17, 7)
            original_us = commit_us & _COMMIT_TIME_MASK
            store64(out, to + COMMIT_US, original_us)
            # If the transaction came from another server, that server's time follows.
            if commit_us > _COMMIT_TIME_MASK and end - clock >= 31:
                original_us = load_le(data, clock + 24, 7) & _COMMIT_TIME_MASK
            store64(out, to + ORIGINAL_US, original_us)
    return READ


@without_refcounts
def _packed(data, at, end):
    """Return (number, offset after it) of a number whose first byte's trailing ones say how many
    bytes follow; offset -1: too short."""
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


@inlined
def _is_tag(data, at, size):
    """Tell if a tag is made of a-z, 0-9 and _: no other can be read back from text."""
    for k in range(at, at + size):
        byte = load8(data, k)
        if not (97 <= byte <= 122 or 48 <= byte <= 57 or byte == 95):
            return False
    return True


@without_refcounts
def _read_tagged(data, body, end, out, to):
    """Read GTID_TAGGED: MySQL's serialised form, fields as number and value, in order of their
    numbers.

    Format: libs/mysql/serialization of MySQL 8.3 and later.
    """
    version, at = _packed(data, body, end)
    size, at = _packed(data, at, end) if at >= 0 else (0, at)
    _needed, at = _packed(data, at, end) if at >= 0 else (0, at)
    if at < 0 or version != 1 or size > end - body:
        return TOO_SHORT
    end = body + size
    seen = 0
    while 0 <= at < end:
        number, at = _packed(data, at, end)
        if at < 0:
            return TOO_SHORT
        if number == 1:  # uuid: sixteen numbers
            for k in range(UUID_BYTES):
                byte, at = _packed(data, at, end)
                if at < 0:
                    return TOO_SHORT
                store8(out, to + SID + k, byte & 255)
        else:
            value, at = _packed(data, at, end)
            if at < 0:
                return TOO_SHORT
            signed = (value >> 1) ^ -(value & 1)
            if number == 2:
                store64(out, to + GNO, signed)
            elif number == 3:
                if value < 0 or value > TAG_BYTES or value > end - at:
                    return TOO_SHORT
                if not _is_tag(data, at, value):
                    return BAD_TAG
                copy(out, to + TAG, data, at, value)
                at += value
            elif number == 4:
                store64(out, to + LAST_COMMITTED, signed)
            elif number == 5:
                store64(out, to + SEQUENCE_NUMBER, signed)
            elif number == 6:
                store64(out, to + COMMIT_US, value)
                store64(out, to + ORIGINAL_US, value)
            elif number == 7:  # where it differs
                store64(out, to + ORIGINAL_US, value)
            elif number > 11:
                break  # a later server's addition, which may be ignored
        if number < 4:
            seen |= 1 << number
    return READ if at >= 0 and seen & 0b0110 == 0b0110 else TOO_SHORT


@inlined
def _follows(records, at):
    """Tell if a record's GTID is the next one of the same source and tag as the one before."""
    before = at - RECORD_BYTES
    return (
        before >= 0
        and load8(records, at + FLAVOR) == MYSQL
        and load8(records, before + FLAVOR) == MYSQL
        and load64(records, at + GNO) == load64(records, before + GNO) + 1
        and same_bytes(records, at + SID, before + SID, UUID_BYTES)
        and same_bytes(records, at + TAG, before + TAG, TAG_BYTES)
    )


@without_refcounts
def read_gtid(data, at, body, end, position, records, to):
    """Fill the record at `to` from the event at `at`, in the log at `position`, whose body is
    data[body:end]; return a code of those above. The record is of no use if it is not READ."""
    clear(records, to, to + RECORD_BYTES)
    kind = load8(data, at + 4)
    flavor = MARIADB if kind == ev.MARIADB_GTID else NO_GTID if kind == ev.ANONYMOUS_GTID else MYSQL
    store8(records, to + FLAVOR, flavor)
    store64(records, to + POSITION, position)
    store32(records, to + SERVER_ID, load32(data, at + 5))
    if kind == ev.GTID_TAGGED:
        code = _read_tagged(data, body, end, records, to)
    else:
        code = _read_plain(data, body, end, records, to, kind == ev.MARIADB_GTID)
    if code == READ:
        store8(records, to + FOLLOWS, 1 if _follows(records, to) else 0)
    return code
