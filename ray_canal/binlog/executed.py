"""Compute the set of executed transactions after those of a chunk: GTID sets, chunk by chunk."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import GTID_MARIADB, GTID_MYSQL
from ray_canal.model.arrays import Int64s, Records
from ray_canal.model.gtid import GtidSet, MariadbGtid

_RUNS_MAX = 64


def gtid_set_after(before: str, gtids: Records) -> str:
    """The executed set after these transactions; unchanged by anonymous ones."""
    if not len(gtids):
        return before
    if gtids["flavor"][0] == GTID_MYSQL and gtids["follows"][1:].all():  # as nearly always
        return _with_runs(before, gtids, np.zeros(1, np.int64))
    flavor = gtids["flavor"]
    if (flavor == GTID_MARIADB).any():
        return _mariadb_after(before, gtids, np.flatnonzero(flavor == GTID_MARIADB))
    is_named = flavor == GTID_MYSQL
    named = gtids if is_named.all() else gtids[is_named]
    if not len(named):
        return before
    begins = named["follows"] == 0
    begins[0] = True  # what it follows is not among them
    starts = np.flatnonzero(begins)
    if len(starts) > _RUNS_MAX:  # several sources in turns: sorted, each has its own few runs
        source = np.ascontiguousarray(named["sid"]).view("S16").ravel()
        # (NumPy drops trailing zero bytes of an `S`; among texts of 16 bytes that keeps equal what
        # is equal.)
        named = named[np.lexsort((named["gno"], named["tag"], source))]
        starts = _run_starts(named)
    return _with_runs(before, named, starts)


def _with_runs(before: str, named: Records, starts: Int64s) -> str:
    """The set with these GTIDs of MySQL, of which each run is of one source and tag, without
    gaps."""
    executed = GtidSet.parse(before)
    firsts = starts.tolist()
    lasts = [*(first - 1 for first in firsts[1:]), len(named) - 1]
    sids, tags, numbers = named["sid"], named["tag"], named["gno"]
    for first, last in zip(firsts, lasts, strict=True):
        sid, tag = sids[first].tobytes(), tags[first].decode("ascii")
        executed.add_range(sid, int(numbers[first]), int(numbers[last]), tag)
    return str(executed)


def _run_starts(named: Records) -> Int64s:
    """Return where runs of one source and tag with rising numbers begin."""
    goes_on = np.diff(named["gno"]) == 1
    for field in ("sid", "tag"):
        words = np.ascontiguousarray(named[field]).view(np.uint64).reshape(len(named), -1)
        goes_on &= (words[1:] == words[:-1]).all(axis=1)
    return np.append(0, np.flatnonzero(~goes_on) + 1)


def _mariadb_after(before: str, gtids: Records, named: Int64s) -> str:
    """The position after the `named` ones: the last of each domain."""
    position = MariadbGtid.parse(before)
    domains = gtids["domain"][named]
    ends = np.append(np.flatnonzero(domains[1:] != domains[:-1]), len(named) - 1)  # of runs
    _, from_end = np.unique(domains[ends[::-1]], return_index=True)
    for number in named[ends[len(ends) - 1 - from_end]].tolist():
        last = gtids[number]
        position.add(int(last["domain"]), int(last["server_id"]), int(last["gno"]))
    return str(position)
