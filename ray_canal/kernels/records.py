"""Between the walk's arrays and the records of binlog/chunk.py: one pass over all entries.

Field by field, numpy would go over them a dozen times with strides.
"""

from __future__ import annotations

from ray_canal.kernels import walk as w
from ray_canal.kernels.jit import bare
from ray_canal.kernels.rows import VERSION_PARTIAL


@bare
def place_events(found, source, table_index, events, body_start, body_end, version):  # type: ignore[no-untyped-def]
    """Fill EVENT records: record i is entry source[i] of `found`. Of row events also where their
    body lies and the version of their format."""
    for i in range(source.size):
        k = source[i]
        event = events[i]
        event["position"] = found[w.POSITION, k]
        event["aux"] = found[w.AUX, k]
        event["present"] = -1
        event["inner"] = found[w.INNER, k]
        event["timestamp"] = found[w.TIMESTAMP, k]
        event["length"] = found[w.LENGTH, k]
        event["server_id"] = found[w.SERVER_ID, k]
        event["gtid"] = found[w.GTID, k]
        event["kind"] = found[w.KIND, k]
        event["event_type"] = found[w.EVENT_TYPE, k]
        event["type_code"] = found[w.TYPE_CODE, k]
        event["flags"] = found[w.FLAGS, k]
        table = found[w.TABLE, k]
        event["table"] = -1
        if table >= 0:
            event["table"] = table_index[table]
            body_start[i] = found[w.BODY_START, k]
            body_end[i] = found[w.BODY_END, k]
            code = found[w.TYPE_CODE, k]
            version[i] = VERSION_PARTIAL if code == 39 else 2
            if code < 30:
                version[i] = 1 if code >= 23 else 0


@bare
def place_gtids(found, gtids):  # type: ignore[no-untyped-def]
    """Fill GTID records, all but source uuid and tag."""
    for i in range(found.shape[1]):
        gtid = gtids[i]
        gtid["gno"] = found[w.G_GNO, i]
        gtid["last_committed"] = found[w.G_LAST_COMMITTED, i]
        gtid["sequence_number"] = found[w.G_SEQUENCE, i]
        gtid["commit_us"] = found[w.G_COMMIT_US, i]
        gtid["original_us"] = found[w.G_ORIGINAL_US, i]
        gtid["position"] = found[w.G_POSITION, i]
        gtid["domain"] = found[w.G_DOMAIN, i]
        gtid["server_id"] = found[w.G_SERVER_ID, i]
        gtid["flavor"] = found[w.G_FLAVOR, i]


@bare
def place_rows(heads, numbers, rows, row, present, events):  # type: ignore[no-untyped-def]
    """Row events' row counts, first rows and bitmaps; `rows`, `row`, `present` are heads' columns,
    `numbers` the events' indexes."""
    for i in range(numbers.size):
        event = events[numbers[i]]
        event["rows"] = heads[i, rows]
        event["row"] = heads[i, row]
        event["present"] = heads[i, present]


@bare
def place_entries(events, entries):  # type: ignore[no-untyped-def]
    """Fill ENTRY records from EVENT records."""
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
        entry["flags"] = event["flags"]
        entry["transaction"] = event["gtid"]

