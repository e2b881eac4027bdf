"""A fault run whose source is two servers that replicate, and whose cursors are in a third one.

The judge knows a row by its transaction, its number in it, its table and its keys, which are the
same on both servers, and compares with what both have logged, as mysqlbinlog reads it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.fault.faults import SINK_FAULTS
from tests.fault.judge import Judge
from tests.fault.pair import Pair
from tests.fault.pair_faults import PAIR_FAULTS
from tests.fault.run import BY_TCP, DATABASE, RECOVERY_MAX_S, FaultRun
from tests.fault.truth import Row, first_difference
from tests.processes import wait_for
from tests.proxy import Proxy
from tests.servers import Server
from tests.workload import Replica


class PairJudge(Judge):
    """A judge of rows that have the same names on both servers, also where GTIDs begin again."""

    def _name(self, table: str, row: dict[str, Any]) -> Row | None:
        if not row.get("transaction"):
            return None
        before, after = (row[image] and row[image]["id"] for image in ("before", "after"))
        full_name = f"{self.database}.{table}"
        return full_name, row["transaction"], row["transaction_row"], before, after

    def explained(self, truth: list[Row]) -> str:
        """How the journal, read again, differs from these rows; or ""."""
        taken = Recorder(self.database, self.filter.pattern, self.path)
        taken.read()
        if taken.found == truth:
            return ""
        at = first_difference(taken.found, truth)
        lost, more = Counter(truth), Counter(taken.found)
        return (
            f"{len(taken.found)} rows taken, the logs have {len(truth)}; the first difference is "
            f"row {at}: {taken.found[at : at + 3]} is not {truth[at : at + 3]}; "
            f"lost {_some(lost - more)}; too many {_some(more - lost)}"
        )


class Recorder(PairJudge):
    """Keeps all that it takes."""

    def __init__(self, database: str, tables: str, path: Path) -> None:
        super().__init__(database, tables, path)
        self.found: list[Row] = []

    def _taken(self, name: Any) -> None:
        self.found.append(name)


class StateJudge(Judge):
    """Of a subscriber by Canal's protocol: places there say neither which server nor which log they
    are of. So its state alone is judged."""

    def apply(self, parts: list[list[pa.RecordBatch]]) -> None:
        for batch in (batch for batches in parts for batch in batches):
            table = batch.schema.metadata[b"canal.table"].decode()
            assert self.filter.fullmatch(f"{self.database}.{table}"), f"{table} is not subscribed"
            for row in batch.to_pylist():
                Replica._change(self, table, row)
                self.rows += 1
            self.received = self.rows


def _some(rows: Counter[Row]) -> str:
    return f"{rows.total()}: {list(rows)[:3]} …" if rows else "none"


class PairRun(FaultRun):
    """`meta`: the server of the cursors."""

    def __init__(
        self, pair: Pair, meta: Server, folder: Path, seed: int, decoders: int = 0, **more: Any
    ) -> None:
        self.pair = pair
        self.proxies = [Proxy((each.host, each.port)) for each in pair.servers]
        self.cursors = Proxy((meta.host, meta.port))
        super().__init__(pair.master, folder, seed, decoders, **more)
        self.kinds = {**PAIR_FAULTS, **(SINK_FAULTS if self.sinks else {})}

    @property
    def server(self) -> Server:
        return self.pair.master

    @property
    def proxy(self) -> Proxy:
        return self.rng.choice(self.proxies)

    def _judge_of(self, client_id: int, tables: str, journal: Path) -> Judge:
        return (StateJudge if client_id == BY_TCP else PairJudge)(DATABASE, tables, journal)

    def _config(self) -> str:
        one, two = (proxy.address for proxy in self.proxies)
        return self._toml(
            f'[meta]\nbackend = "mysql"\naddress = "{self.cursors.address}"\nusername = "root"\n'
            "timeout_s = 1.0\n",
            f'address = "{one}"\nstandby = ["{two}"]\nstart = "earliest"\non_reset = "earliest"\n'
            "detect_interval_s = 0.3\ndetect_failures = 2\n",
        )

    def __exit__(self, *failure: object) -> None:
        super().__exit__(*failure)
        for proxy in (*self.proxies, self.cursors):
            proxy.__exit__(None, None, None)

    @contextlib.contextmanager
    def quiet(self, acked: bool = False) -> Iterator[None]:
        with self._writing:
            if acked:
                self._recovered("the last row before it")
                wait_for(self._all_acked, RECOVERY_MAX_S, "all is acked")
            yield
            self.work.server = self.server

    def _all_acked(self) -> bool:
        for judge in self.judges.values():
            judge.read()
        return all(judge.is_acked for judge in self.judges.values()) and all(
            told.get("entries_behind") == 0 for told in self.sink_subscribers()
        )

    def _logged(self, number: int) -> Iterator[Row]:
        return (row for era in self.pair.logged(number) for row in era)

    def _changes(self) -> Iterator[Row]:
        return self._logged(self.pair.writer)

    def _truth(self) -> None:
        self.pair.catch_up()
        self._logs = {client_id: hashlib.sha256() for client_id in self.judges}
        all_here, all_there = hashlib.sha256(), hashlib.sha256()
        for row in self._logged(self.pair.writer):
            text = repr(row).encode()
            all_here.update(text)
            for client_id, judge in self.judges.items():
                if judge.filter.fullmatch(row[0]):
                    self._logs[client_id].update(text)
        for row in self._logged(self.pair.standby):
            all_there.update(repr(row).encode())
        assert all_here.digest() == all_there.digest(), "the servers' logs differ"

    def _missing(self, client_id: int) -> str:
        judge = self.judges[client_id]
        if not isinstance(judge, PairJudge) or judge.named == self._logs[client_id].digest():
            return ""
        truth = [r for r in self._logged(self.pair.writer) if judge.filter.fullmatch(r[0])]
        return judge.explained(truth) or "the rows of its first reading were others"
