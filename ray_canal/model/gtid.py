"""GTID sets: MySQL's sets of transaction intervals per source, MariaDB's position per domain.

Pure values with text and wire forms. Wire form: that of COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS,
which is little-endian:

    plain    u64 sources; per source: 16-byte uuid, u64 intervals, per interval u64 first, u64 end
    tagged   (MySQL 8.3+) the leading u64 has 1 in its first and last byte and the count between
             them; after each uuid comes the tag: one byte of twice its length, and its letters

An interval's end is exclusive on the wire and inclusive in text.
"""

from __future__ import annotations

import bisect
import re
import struct
import uuid
from collections.abc import Iterator

from ray_canal.errors import ConfigError, CorruptEvent

GNO_MAX = (1 << 63) - 2
"""MySQL's largest transaction number."""

_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_NUMBER = re.compile(r"[0-9]{1,40}")
_INTERVAL = re.compile(r"(\d{1,40})(?:\s*-\s*(\d{1,40}))?\Z")
_TAGGED = 1

Key = tuple[bytes, str]


class _Intervals:
    """Sorted, disjoint, non-touching intervals [first, end); an append at the end is O(1)."""

    __slots__ = ("ends", "firsts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.ends: list[int] = []

    def copy(self) -> _Intervals:
        other = _Intervals()
        other.firsts, other.ends = self.firsts[:], self.ends[:]
        return other

    def add(self, first: int, end: int) -> None:
        if not self.ends or first > self.ends[-1]:
            self.firsts.append(first)
            self.ends.append(end)
            return
        if first == self.ends[-1]:
            self.ends[-1] = end
            return
        low = bisect.bisect_left(self.ends, first)
        high = bisect.bisect_right(self.firsts, end)
        if low < high:
            first, end = min(first, self.firsts[low]), max(end, self.ends[high - 1])
        self.firsts[low:high] = [first]
        self.ends[low:high] = [end]

    def remove(self, first: int, end: int) -> None:
        low = bisect.bisect_right(self.ends, first)
        high = bisect.bisect_left(self.firsts, end)
        if low >= high:
            return
        left, right = self.firsts[low], self.ends[high - 1]
        kept = [(left, first)] * (left < first) + [(end, right)] * (end < right)
        self.firsts[low:high] = [part[0] for part in kept]
        self.ends[low:high] = [part[1] for part in kept]

    def covers(self, first: int, end: int) -> bool:
        index = bisect.bisect_right(self.firsts, first) - 1
        return index >= 0 and self.ends[index] >= end

    def pairs(self) -> Iterator[tuple[int, int]]:
        return zip(self.firsts, self.ends, strict=True)


class GtidSet:
    """A MySQL GTID set. Mutable; `copy()` before sharing. A source is its 16 uuid bytes or its
    text.
    """

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[Key, _Intervals] = {}

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read MySQL's text form, blanks and line ends allowed. Raises ConfigError."""
        found = cls()
        for group in text.split(","):
            if not group.strip():
                continue
            parts = [part.strip() for part in group.split(":")]
            sid, tag = _sid(parts[0]), ""
            if len(parts) < 2:
                raise ConfigError(f"GTID set {group.strip()!r}: expected uuid:first-last")
            for part in parts[1:]:
                if _TAG.match(part.lower()):
                    tag = part.lower()
                    continue
                interval = _INTERVAL.match(part)
                first = int(interval[1]) if interval else 0
                last = int(interval[2] or first) if interval else 0
                if not 1 <= first <= GNO_MAX or last > GNO_MAX:
                    raise ConfigError(f"GTID set {group.strip()!r}: {part!r} is no interval or tag")
                if first <= last:  # MySQL takes 5-3 as empty
                    found.add_range(sid, first, last, tag)
        return found

    @classmethod
    def decode(cls, body: bytes) -> GtidSet:
        """Read the wire form (a PREVIOUS_GTIDS event's body). Raises CorruptEvent."""
        found = cls()
        reader = _Reader(body)
        head = reader.u64()
        tagged = head >> 56 == _TAGGED
        for _ in range((head >> 8) & ((1 << 48) - 1) if tagged else head):
            sid = reader.take(16)
            tag = reader.take(reader.u8() >> 1).decode("ascii", "replace") if tagged else ""
            for _ in range(reader.u64()):
                first, end = reader.u64(), reader.u64()
                if not 1 <= first < end <= GNO_MAX + 1:
                    raise CorruptEvent(f"GTID interval {first}-{end - 1} is out of range")
                found.add_range(sid, first, end - 1, tag)
        return found

    def encode(self) -> bytes:
        """The wire form; the tagged one only where there are tags, as older servers do not know
        it.
        """
        tagged = any(tag for _, tag in self._of)
        count = len(self._of)
        head = count << 8 | _TAGGED << 56 | _TAGGED if tagged else count
        parts = [struct.pack("<Q", head)]
        for (sid, tag), intervals in sorted(self._of.items()):
            parts.append(sid)
            if tagged:
                parts.append(bytes([len(tag) << 1]) + tag.encode("ascii"))
            parts.append(struct.pack("<Q", len(intervals.firsts)))
            parts.extend(struct.pack("<QQ", *pair) for pair in intervals.pairs())
        return b"".join(parts)

    def add(self, sid: bytes | str, gno: int, tag: str = "") -> None:
        """Add one transaction."""
        self.add_range(sid, gno, gno, tag)

    def add_range(self, sid: bytes | str, first: int, last: int, tag: str = "") -> None:
        """Add transactions first … last, both included."""
        key = (sid if isinstance(sid, bytes) else _sid(sid), tag)
        intervals = self._of.get(key)
        if intervals is None:
            intervals = self._of[key] = _Intervals()
        intervals.add(first, last + 1)

    def contains(self, sid: bytes | str, gno: int, tag: str = "") -> bool:
        """Return whether one transaction is in the set."""
        intervals = self._of.get((sid if isinstance(sid, bytes) else _sid(sid), tag))
        return intervals is not None and intervals.covers(gno, gno + 1)

    def last_ones(self) -> Iterator[tuple[bytes, str, int]]:
        """Yield the transactions whose next one is not in the set: (source, tag, number)."""
        for (sid, tag), intervals in self._of.items():
            for end in intervals.ends:
                yield sid, tag, end - 1

    def update(self, other: GtidSet) -> None:
        """Add all of another set."""
        for key, intervals in other._of.items():
            mine = self._of.setdefault(key, _Intervals())
            for first, end in intervals.pairs():
                mine.add(first, end)

    def union(self, other: GtidSet) -> GtidSet:
        """A new set: transactions in either."""
        result = self.copy()
        result.update(other)
        return result

    def subtract(self, other: GtidSet) -> GtidSet:
        """A new set: transactions in this and not in the other."""
        result = self.copy()
        for key, intervals in other._of.items():
            mine = result._of.get(key)
            if mine is not None:
                for first, end in intervals.pairs():
                    mine.remove(first, end)
                if not mine.firsts:
                    del result._of[key]
        return result

    def issubset(self, other: GtidSet) -> bool:
        """Return whether the other set has every transaction of this one."""
        for key, intervals in self._of.items():
            theirs = other._of.get(key)
            if theirs is None or not all(theirs.covers(*pair) for pair in intervals.pairs()):
                return False
        return True

    def copy(self) -> GtidSet:
        """Return a copy that can be changed alone."""
        result = GtidSet()
        result._of = {key: intervals.copy() for key, intervals in self._of.items()}
        return result

    def __bool__(self) -> bool:
        return bool(self._of)

    def __len__(self) -> int:
        """Number of transactions."""
        return sum(end - first for each in self._of.values() for first, end in each.pairs())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GtidSet) or self._of.keys() != other._of.keys():
            return NotImplemented if not isinstance(other, GtidSet) else False
        return all(
            mine.firsts == other._of[key].firsts and mine.ends == other._of[key].ends
            for key, mine in self._of.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """Canonical text: sources in byte order, tags in order after the untagged, no blanks."""
        groups: dict[bytes, list[str]] = {}
        for (sid, tag), intervals in sorted(self._of.items()):
            parts = groups.setdefault(sid, [str(uuid.UUID(bytes=sid))])
            if tag:
                parts.append(tag)
            parts.extend(
                str(first) if end == first + 1 else f"{first}-{end - 1}"
                for first, end in intervals.pairs()
            )
        return ",".join(":".join(parts) for parts in groups.values())

    def __repr__(self) -> str:
        return f"GtidSet.parse({str(self)!r})"


class MariadbGtid:
    """MariaDB's position: of each replication domain, the last (server id, sequence number)."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, int]] = {}

    @classmethod
    def parse(cls, text: str) -> MariadbGtid:
        """Read `domain-server-sequence,…`. Raises ConfigError: malformed, or a domain named
        twice.
        """
        found = cls()
        for part in filter(None, (part.strip() for part in text.split(","))):
            numbers = part.split("-")
            if len(numbers) != 3 or not all(map(_NUMBER.fullmatch, numbers)):
                raise ConfigError(f"MariaDB GTID {part!r}: expected domain-server-sequence")
            domain, server_id, sequence = map(int, numbers)
            if domain >= 1 << 32 or server_id >= 1 << 32 or sequence >= 1 << 64:
                raise ConfigError(f"MariaDB GTID {part!r}: a number is out of range")
            if domain in found._of:
                raise ConfigError(f"MariaDB GTID position {text!r} names domain {domain} twice")
            found._of[domain] = (server_id, sequence)
        return found

    @classmethod
    def decode(cls, body: bytes) -> MariadbGtid:
        """Read a GTID_LIST event's body; its last entry of a domain counts. Raises CorruptEvent."""
        found = cls()
        reader = _Reader(body)
        for _ in range(reader.u32() & 0x0FFFFFFF):
            domain, server_id, sequence = reader.u32(), reader.u32(), reader.u64()
            found.add(domain, server_id, sequence)
        return found

    def add(self, domain: int, server_id: int, sequence: int) -> None:
        """Add a transaction, which is its domain's position from now on."""
        self._of[domain] = (server_id, sequence)

    def last_ones(self) -> Iterator[tuple[int, int, int]]:
        """Yield the last transaction of each domain: (domain, server id, sequence number)."""
        for domain, (server_id, sequence) in self._of.items():
            yield domain, server_id, sequence

    def contains(self, domain: int, sequence: int) -> bool:
        """Return whether that transaction lies at or before this position."""
        return domain in self._of and sequence <= self._of[domain][1]

    def issubset(self, other: MariadbGtid) -> bool:
        """Return whether the other position is as far or farther in every domain."""
        return all(other.contains(domain, at[1]) for domain, at in self._of.items())

    def copy(self) -> MariadbGtid:
        """Return a copy that can be changed alone."""
        result = MariadbGtid()
        result._of = dict(self._of)
        return result

    def __bool__(self) -> bool:
        return bool(self._of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MariadbGtid) and self._of == other._of

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return ",".join(f"{domain}-{at[0]}-{at[1]}" for domain, at in sorted(self._of.items()))

    def __repr__(self) -> str:
        return f"MariadbGtid.parse({str(self)!r})"


class _Reader:
    """Reads numbers in order, each length checked first."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes) -> None:
        self._body = bytes(body)
        self._at = 0

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._body):
            raise CorruptEvent(
                f"GTID set is cut off: {size} bytes wanted at {self._at} of {len(self._body)}"
            )
        self._at += size
        return self._body[self._at - size : self._at]

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")


def _sid(text: str) -> bytes:
    try:
        return uuid.UUID(text.strip()).bytes
    except ValueError:
        raise ConfigError(f"GTID set: {text.strip()!r} is no server uuid") from None
