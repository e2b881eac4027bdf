"""Leave out events by their kind, before rows are decoded (Canal: filter.query.*, filter.dml.*).

They stay in the log as silent ones, so that cursors and executed GTIDs move over them, and a
change of the filter does not shift what a cursor counts.
"""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.assemble import hide
from ray_canal.binlog.chunk import EVENT_SILENT, of_rows
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.filter import EventFilter
from ray_canal.kernels.base import event_types
from ray_canal.model.canal_types import DDL, DML, ROWDATA, XACOMMIT, XAROLLBACK

_STATEMENTS = (event_types.QUERY, event_types.EXECUTE_LOAD_QUERY)
"""All other events that are no rows accompany rows: ROWS_QUERY, ANNOTATE_ROWS, variables."""


def drop_events(parsed: ParsedChunk, wanted: EventFilter) -> None:
    """Hide what the filter drops, in the chunk's own events."""
    events = parsed.events
    has_rows = of_rows(events)
    kinds = events["event_type"]
    dropped = [
        kind
        for kind, drops in zip(
            DML, (wanted.dml_insert, wanted.dml_update, wanted.dml_delete), strict=True
        )
        if drops
    ]
    if dropped:
        hide(events, has_rows & np.isin(kinds, dropped))
    statements = (events["kind"] == ROWDATA) & ~has_rows
    executed = np.isin(events["type_code"], _STATEMENTS)
    is_ddl = executed & np.isin(kinds, DDL)
    is_dml = ~executed | np.isin(kinds, DML)
    is_dcl = ~(is_ddl | is_dml | np.isin(kinds, (XACOMMIT, XAROLLBACK)))
    silent = np.zeros(len(events), np.bool_)
    for drops, chosen in (
        (wanted.query_ddl, is_ddl), (wanted.query_dml, is_dml), (wanted.query_dcl, is_dcl)
    ):  # fmt: skip
        if drops:
            silent |= chosen
    events["flags"][statements & silent] |= EVENT_SILENT
