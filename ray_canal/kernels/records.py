"""Between the walk's arrays and the records of binlog/chunk.py: one pass over all entries.

Field by field, numpy would go over them a dozen times with strides.
"""

from __future__ import annotations

from typing import Final

from ray_canal.kernels import gtid_events as g
from ray_canal.kernels import rows as r
from ray_canal.kernels import walk as w
from ray_canal.kernels.jit import bare, inlined
from ray_canal.kernels.memory import copy, same_bytes
from ray_canal.kernels.rows import VERSION_PARTIAL


@bare
def number_tables(events, table_index):  # type: ignore[no-untyped-def]
    """Put other numbers in the place of row events' tables."""
    for i in range(events.size):
        table = events[i]["table"]
        if table >= 0:
            events[i]["table"] = table_index[table]


@bare
def row_events(events, bodies, lines):  # type: ignore[no-untyped-def]
    """Fill the lines of kernels/rows.py for the row events among `events`; how many there are."""
    count = 0
    for i in range(events.size):
        event = events[i]
        if event["table"] < 0:
            continue
        code = event["type_code"]
        version = 2 if code >= 30 else 1 if code >= 23 else 0
        lines[count, r.E_START] = bodies[i, 0]
        lines[count, r.E_END] = bodies[i, 1]
        lines[count, r.E_VERSION] = VERSION_PARTIAL if code == 39 else version
        lines[count, r.E_TYPE] = event["event_type"]
        lines[count, r.E_TABLE] = event["table"]
        lines[count, r.E_NUMBER] = i
        count += 1
    return count


@bare
def place_sources(data, found, size, uuid_at, tag_at, records):  # type: ignore[no-untyped-def]
    """Give GTID records (`size` bytes each, all zero) their source's uuid, most significant byte
    first, and their tag."""
    for i in range(found.shape[0]):
        uuid = i * size + uuid_at
        for half in range(2):
            word = found[i, g.G_UUID + half]
            for k in range(8):
                records[uuid + 8 * half + k] = word >> (56 - 8 * k) & 255
        count = found[i, g.G_TAG_BYTES]
        if count:
            copy(records, i * size + tag_at, data, found[i, g.G_TAG], count)


_MYSQL: Final = 1  # GTID_MYSQL


@inlined
def _follows(data, found, i):  # type: ignore[no-untyped-def]
    """Whether a GTID is the next one of the same source and tag as the one before."""
    h = i - 1
    same = i > 0 and found[i, g.G_FLAVOR] == _MYSQL and found[h, g.G_FLAVOR] == _MYSQL
    for field in range(g.G_UUID, g.G_UUID + 2):
        same = same and found[i, field] == found[h, field]
    size = found[i, g.G_TAG_BYTES]
    if not same or found[i, g.G_GNO] != found[h, g.G_GNO] + 1 or found[h, g.G_TAG_BYTES] != size:
        return False
    return size == 0 or same_bytes(data, found[h, g.G_TAG], found[i, g.G_TAG], size)


@bare
def place_gtids(data, found, gtids):  # type: ignore[no-untyped-def]
    """Fill GTID records, all but source uuid and tag."""
    for i in range(found.shape[0]):
        gtid = gtids[i]
        gtid["gno"] = found[i, g.G_GNO]
        gtid["last_committed"] = found[i, g.G_LAST_COMMITTED]
        gtid["sequence_number"] = found[i, g.G_SEQUENCE]
        gtid["commit_us"] = found[i, g.G_COMMIT_US]
        gtid["original_us"] = found[i, g.G_ORIGINAL_US]
        gtid["position"] = found[i, g.G_POSITION]
        gtid["domain"] = found[i, g.G_DOMAIN]
        gtid["server_id"] = found[i, g.G_SERVER_ID]
        gtid["flavor"] = found[i, g.G_FLAVOR]
        gtid["follows"] = _follows(data, found, i)


@bare
def place_rows(heads, numbers, rows, row, present, events):  # type: ignore[no-untyped-def]
    """Row events' row counts, first rows and bitmaps; `rows`, `row`, `present` are heads' columns,
    `numbers` the events' indexes."""
    for i in range(numbers.size):
        event = events[numbers[i]]
        event["rows"] = heads[i, rows]
        event["row"] = heads[i, row]
        event["present"] = heads[i, present]


# As in binlog/chunk.py.
_ROWDATA: Final = 2
_IN_TRANSACTION: Final = 1
_CLOSES: Final = 4


@bare
def place_entries(events, entries):  # type: ignore[no-untyped-def]
    """Fill ENTRY records from EVENT records; which of them close a transaction is told here."""
    for i in range(events.size):
        event, entry = events[i], entries[i]
        entry["position"] = event["position"]
        entry["inner"] = event["inner"]
        entry["length"] = event["length"]
        entry["timestamp"] = event["timestamp"]
        entry["rows"] = event["rows"]
        entry["table"] = event["table"]
        entry["kind"] = event["kind"]
        entry["event_type"] = event["event_type"]
        entry["transaction"] = event["gtid"]
        flags = event["flags"]
        alone = event["kind"] == _ROWDATA and not flags & _IN_TRANSACTION and event["rows"] == 0
        if alone and i + 1 < events.size:
            behind = events[i + 1]
            named = event["gtid"] >= 0 and event["gtid"] == behind["gtid"]
            alone = not named and event["position"] != behind["position"]
        entry["flags"] = flags | _CLOSES if alone or event["kind"] == w.KIND_END else flags


_SILENT: Final = 2


@bare
def shown_entries(events, first, last, mask, chosen):  # type: ignore[no-untyped-def]
    """Numbers of the entries [first, last) that are shown, into `chosen`; how many they are. `mask`
    has an element for each entry, or none at all."""
    count = 0
    for i in range(first, last):
        if (mask.size == 0 or mask[i]) and not events[i]["flags"] & _SILENT:
            chosen[count] = i
            count += 1
    return count


@bare
def entry_pieces(events, chosen, expansion, entry_bytes, piece_bytes, ends, binlog_bytes):  # type: ignore[no-untyped-def]
    """Cut entries into pieces of about `piece_bytes`, if a byte of binlog becomes `expansion` and
    an entry takes `entry_bytes` besides: where each ends in `chosen`, and its bytes of binlog. How
    many pieces there are."""
    count = 0
    total = length = 0
    for i in range(chosen.size):
        size = events[chosen[i]]["length"]
        length += size
        total += expansion * size + entry_bytes
        if total >= piece_bytes or i == chosen.size - 1:
            ends[count] = i + 1
            binlog_bytes[count] = length
            count += 1
            total = length = 0
    return count
