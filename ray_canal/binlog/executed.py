"""Which transactions are executed once those of a chunk are: GTID sets, chunk by chunk."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ray_canal.binlog.chunk import GTID_MARIADB, GTID_MYSQL
from ray_canal.protocol.gtid import GtidSet, MariadbGtid


def gtid_set_after(before: str, gtids: npt.NDArray[np.void]) -> str:
    """The executed set after these transactions; unchanged by anonymous ones."""
    if not len(gtids):
        return before
    flavor = gtids["flavor"]
    if (flavor == GTID_MARIADB).any():
        return _mariadb_after(before, gtids[flavor == GTID_MARIADB])
    named = gtids[flavor == GTID_MYSQL]
    if not len(named):
        return before
    executed = GtidSet.parse(before)
    # Runs of one source with rising numbers are added as one range. (NumPy drops trailing zero
    # bytes of an `S`; among texts of 16 bytes that keeps equal what is equal.)
    source = np.ascontiguousarray(named["sid"]).view("S16").ravel()
    named = named[np.lexsort((named["gno"], named["tag"], source))]
    same = (named["sid"][1:] == named["sid"][:-1]).all(axis=1) & (
        named["tag"][1:] == named["tag"][:-1]
    )
    breaks = np.flatnonzero(~(same & (np.diff(named["gno"]) == 1))) + 1
    for run in np.split(named, breaks):
        executed.add_range(
            run["sid"][0].tobytes(),
            int(run["gno"][0]),
            int(run["gno"][-1]),
            run["tag"][0].decode("ascii"),
        )
    return str(executed)


def _mariadb_after(before: str, gtids: npt.NDArray[np.void]) -> str:
    position = MariadbGtid.parse(before)
    domains, from_end = np.unique(gtids["domain"][::-1], return_index=True)
    for domain, back in zip(domains.tolist(), from_end.tolist(), strict=True):
        last = gtids[len(gtids) - 1 - back]
        position.add(domain, int(last["server_id"]), int(last["gno"]))
    return str(position)
