"""Make what the store and the views need of a chunk's entries other than columns: small records,
tables by name, and what statements do to tables as a whole."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.annotations import annotated
from ray_canal.binlog.chunk import ENTRY, EVENT_SILENT
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.kernels.rows.records import place_entries
from ray_canal.model.arrays import Records
from ray_canal.model.canal_types import ROWDATA
from ray_canal.model.table_event import TableEvent


def control_plane(
    events: Records, parsed: ParsedChunk
) -> tuple[
    Records,
    bool,
    tuple[tuple[str, str], ...],
    tuple[tuple[int, str, str], ...],
    tuple[TableEvent, ...],
]:
    """ChunkInfo's entries, `thins`, tables and renamed ones, the layout's events of tables. DDL of
    a table has its table there too, and so has the text of a statement whose rows follow: they are
    filtered by name as rows are."""
    entries = np.empty(len(events), ENTRY)
    thins = place_entries(events, entries)
    tables = [(v.meta.schema, v.meta.table) for v in parsed.tables]
    renamed = []
    table_events: list[TableEvent] = []
    if len(parsed.annotations.bounds):
        texts, rows = annotated(events)
        entries["table"][texts] = entries["table"][rows]
    if parsed.queries:
        shown = (events["kind"] == ROWDATA) & (events["flags"] & EVENT_SILENT == 0)
        asked = (events["table"] < 0) & (events["aux"] < len(parsed.queries))  # no annotations
        for entry in np.flatnonzero(shown & asked).tolist():
            query = parsed.queries[int(events["aux"][entry])]
            if query.is_ddl and query.schema and query.table:
                entries["table"][entry] = len(tables)
                if query.renamed_from is not None:
                    renamed.append((len(tables), *query.renamed_from))
                tables.append((query.schema, query.table))
            for effect in query.effects:
                number, name = len(tables) - 1, (effect.schema, effect.table)
                if number < 0 or tables[number] != name:
                    number = len(tables)
                    tables.append(name)
                table_events.append(TableEvent(entry, number, effect))
    return entries, bool(thins), tuple(tables), tuple(renamed), tuple(table_events)
