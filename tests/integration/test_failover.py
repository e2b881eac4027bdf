"""A master dies under its writer, and subscribers go on at the standby by themselves."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

import ray_canal as canal
from ray_canal.binlog.trail import DIGEST_CHARACTERS, TRAIL_MAX, Folding
from ray_canal.binlog.walked import digest_pieces, walk
from ray_canal.config import MetaConfig
from ray_canal.errors import ConnectionLost, InstanceRestarted, TransactionsMissing
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.open import open_backend
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import LogPosition, SourceIdentity
from ray_canal.source.connection import connect
from ray_canal.source.live import LiveSource
from ray_canal.source.start.files_log import FilesLog
from tests.dumps import instance
from tests.servers import Server, start

QUICK = {
    "detect_interval_s": 0.2,
    "detect_failures": 2,
    "heartbeat_s": 0.5,
    "read_timeout_s": 3.0,
    "connect_timeout_s": 2.0,
    "reconnect_max_s": 0.5,
}
GTIDS_OFF = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}


@dataclass
class Pair:
    master: Server
    standby: Server
    gtids: bool

    def wait_for_standby(self) -> None:
        """Until the standby has all of the master's rows, which nobody writes meanwhile."""
        deadline = time.monotonic() + 180
        count = self.master.execute("SELECT COUNT(*), MAX(id) FROM f.t")
        while self.standby.execute("SELECT COUNT(*), MAX(id) FROM f.t") != count:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@contextlib.contextmanager
def replicating(kind: str, folder: Path, *, gtids: bool = True) -> Iterator[Pair]:
    options = {} if gtids else GTIDS_OFF
    second = {"server-id": "2", "read-only": "OFF"}
    if kind == "mariadb":
        second["log-slave-updates"] = "ON"
    with (
        start(kind, folder / "master", options) as master,
        start(kind, folder / "standby", {**options, **second}) as standby,
    ):
        if kind != "mysql97":
            where = (
                "MASTER_USE_GTID=slave_pos" if kind == "mariadb"
                else f"MASTER_LOG_FILE='{master.position()[0]}', MASTER_LOG_POS=4"
            )  # fmt: skip
            standby.execute(
                f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={master.port},"
                f" MASTER_USER='root', {where}",
                "START SLAVE",
            )
        else:
            where = (
                "SOURCE_AUTO_POSITION=1" if gtids
                else f"SOURCE_LOG_FILE='{master.position()[0]}', SOURCE_LOG_POS=4"
            )  # fmt: skip
            standby.execute(
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={master.port},"
                f" SOURCE_USER='root', GET_SOURCE_PUBLIC_KEY=1, {where}",
                "START REPLICA",
            )
        master.execute("CREATE DATABASE f", "CREATE TABLE f.t (id INT PRIMARY KEY, v INT)")
        yield Pair(master, standby, gtids)
        master.kill()
        standby.kill()


class Writer(threading.Thread):
    """Inserts 0, 1, 2, … each as a transaction, at `server`, through any error, until told to
    stop."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.written = 0
        self.last: int | None = None

    def run(self) -> None:
        while self.last is None or self.written < self.last:
            with contextlib.suppress(pymysql.err.MySQLError, OSError):
                self._write()
            time.sleep(0.02)

    def _write(self) -> None:
        with contextlib.closing(self.server.connect(connect_timeout=2)) as connection:
            while self.last is None or self.written < self.last:
                cursor = connection.cursor()
                cursor.execute(f"INSERT INTO f.t VALUES ({self.written}, 1)")
                self.written += 1
                time.sleep(0.002)

    def wait(self, count: int) -> None:
        deadline = time.monotonic() + 180
        while self.written < count:
            assert time.monotonic() < deadline, self.written
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "gtids"),
    [
        ("mysql97", True),
        pytest.param("mariadb", True, marks=pytest.mark.soak),
        ("mysql56", False),
        pytest.param("mysql97", False, marks=pytest.mark.soak),
    ],
)
def test_the_master_dies_under_its_writer(
    kind: str, gtids: bool, local_ray: None, tmp_path: Path
) -> None:
    with replicating(kind, tmp_path / "servers", gtids=gtids) as pair:
        config = {
            "meta": {"path": str(tmp_path / "meta.db")},
            "instance": [
                {
                    "destination": "failover",
                    "decoders": int(kind == "mariadb"),  # both topologies, one each
                    "source": {
                        "address": pair.master.address,
                        "standby": [pair.standby.address],
                        "username": "root",
                        **QUICK,
                    },
                }
            ],
        }
        with contextlib.closing(LiveSource(instance(pair.master))) as source:
            at = source.resume(()).position
            old = LogPosition(source.identity, at)
        if kind == "mysql56":
            check_digests(pair, tmp_path)
        # The standby's files have lower numbers than the master's.
        pair.master.execute(*["FLUSH BINARY LOGS"] * 5)
        canal.start(config)
        try:
            writer = Writer(pair.master)
            received: list[int] = []
            taken = Taken()
            with canal.connect("failover", client_id=1) as connector:
                connector.subscribe()
                writer.start()
                receive(connector, received, lambda: len(received) > 100, taken)
                first_timeline = canal.status("failover")["failover"]["timeline"]
                kill_under(pair, writer)
                writer.wait(writer.written + 100)
                writer.last = writer.written + 50
                writer.join(120)
                receive(connector, received, lambda: received[-1] == writer.written - 1, taken)
            assert received == list(range(writer.written))
            taken.check(writer.written)
            status = canal.status("failover")["failover"]
            assert status["timeline"] > first_timeline == taken.ids[0][0]
            assert status["address"] == pair.standby.address
            how = "by GTID" if gtids else "µs" if kind == "mysql97" else "by their rows"
            assert how in status["start"]
            assert "twice" not in status["start"]
        finally:
            canal.stop("failover")
        if kind == "mysql97" and gtids:
            check_cursors(pair, old)
        if kind == "mysql56":
            check_moves_without_gtids(pair, str(tmp_path / "meta.db"))


@pytest.mark.soak
def test_a_standby_that_shares_no_transaction(local_ray: None, tmp_path: Path) -> None:
    """Neither GTIDs nor commit times nor the same transactions: the same rows were written to both
    servers, one by one here and in pairs there. Then only times are left: nothing is lost, and what
    comes twice was written within the stated window."""
    fallback_s = 3.0
    with (
        start("mysql56", tmp_path / "master", GTIDS_OFF) as master,
        start("mysql56", tmp_path / "standby", {**GTIDS_OFF, "server-id": "2"}) as standby,
    ):
        source = {"address": master.address, "standby": [standby.address], "username": "root"}
        config = {
            "meta": {"path": str(tmp_path / "meta.db")},
            "instance": [
                {
                    "destination": "failover",
                    "source": {**source, **QUICK, "fallback_s": fallback_s},
                }
            ],
        }
        for server in (master, standby):
            server.execute("CREATE DATABASE f", "CREATE TABLE f.t (id INT PRIMARY KEY, v INT)")
        canal.start(config)
        try:
            with canal.connect("failover", client_id=1) as connector:
                connector.subscribe()
                written_at = write_to_both(master, standby, seconds=3 * fallback_s)
                before: list[int] = []
                receive(connector, before, lambda: len(before) >= len(written_at))
                assert before == list(range(len(written_at)))
                master.kill()
                last = len(written_at) + 50
                for number in range(len(written_at), last):
                    standby.execute(f"INSERT INTO f.t VALUES ({number}, 1)")
                after: list[int] = []
                receive(connector, after, lambda: after and after[-1] == last - 1)
            assert after == list(range(after[0], last))
            assert after[0] <= len(written_at)
            repeated_s = written_at[-1] - written_at[after[0]] if after[0] < len(written_at) else 0
            # Headers have whole seconds, so the window may be one longer at either end.
            assert repeated_s <= fallback_s + 2
            assert after[0] > 0
            status = canal.status("failover")["failover"]
            assert status["address"] == standby.address
            assert "twice" in status["start"]
        finally:
            canal.stop("failover")


def write_to_both(master: Server, standby: Server, seconds: float) -> list[float]:
    """Rows 0, 1, 2, …; when each was written."""
    written_at: list[float] = []
    end = time.monotonic() + seconds
    with contextlib.closing(master.connect()) as one, contextlib.closing(standby.connect()) as two:
        while time.monotonic() < end:
            number = len(written_at)
            for each in (number, number + 1):
                one.cursor().execute(f"INSERT INTO f.t VALUES ({each}, 1)")
                written_at.append(time.monotonic())
            two.cursor().execute(f"INSERT INTO f.t VALUES ({number}, 1), ({number + 1}, 1)")
            time.sleep(0.02)
    return written_at


def check_digests(pair: Pair, folder: Path) -> None:
    """What binlog/trail.py takes for the same transaction is the same on both servers, whatever is
    in it; and nothing else is."""
    load = folder / "load.txt"
    load.write_text("900\t1\n901\t2\n")
    with contextlib.closing(pair.master.connect(autocommit=False, local_infile=True)) as connection:
        cursor = connection.cursor()
        for statement in (
            "CREATE TABLE f.wide (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT, d DECIMAL(20,5),"
            " at TIMESTAMP)",
            "CREATE TABLE f.plain (id INT, t BLOB) ENGINE=MyISAM",
            "CREATE TEMPORARY TABLE f.tmp (id INT)",
            "INSERT INTO f.wide (t, d) VALUES (REPEAT('ä', 3000), 1.5), (NULL, NULL), ('', -1)",
            *["INSERT INTO f.wide (t, d) SELECT t, d FROM f.wide"] * 5,
            "UPDATE f.wide SET d = id WHERE id % 3 = 0",
            "DELETE FROM f.wide WHERE id % 5 = 0",
            "COMMIT",
            "INSERT INTO f.plain VALUES (1, 'x'), (2, NULL)",
            "INSERT INTO f.tmp VALUES (1)", "DROP TABLE f.tmp",
            "INSERT INTO f.wide (t) VALUES ('same')", "COMMIT",
            "INSERT INTO f.wide (t) VALUES ('rolled back')", "ROLLBACK",
            "UPDATE f.wide w, f.plain p SET w.t = 'two', p.t = 'tables' WHERE p.id = 1", "COMMIT",
            "USE f", f"LOAD DATA LOCAL INFILE '{load}' INTO TABLE plain", "COMMIT",
            "ALTER TABLE f.wide ADD INDEX (d)", "DROP TABLE f.plain", "DELETE FROM wide", "COMMIT",
            "CREATE TABLE f.done (id INT)",
        ):  # fmt: skip
            cursor.execute(statement)
    deadline = time.monotonic() + 180
    while not pair.standby.execute("SHOW TABLES FROM f LIKE 'done'"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    mine, theirs = digests(pair.master), digests(pair.standby)
    assert mine == theirs
    assert len(mine) == len(set(mine)) > 12


def digests(server: Server) -> list[int]:
    """Of all transactions that a server has, in order."""
    found: list[int] = []
    for path in server.binlogs():
        folding = Folding()
        for chunk in FilesLog([path]).chunks(path.name, 1 << 16):
            found += folding.add(digest_pieces(chunk, walk(chunk))).digests.tolist()
    return found


def kill_under(pair: Pair, writer: Writer) -> None:
    """Kill the master while its writer is inserting. What it has committed is at the standby
    before, as semi-synchronous replication would see to."""
    lock = pair.master.connect()
    lock.cursor().execute("FLUSH TABLES WITH READ LOCK")
    pair.wait_for_standby()
    pair.master.kill()
    with contextlib.suppress(Exception):
        lock.close()
    pair.standby.execute("STOP REPLICA" if pair.standby.kind == "mysql97" else "STOP SLAVE")
    writer.server = pair.standby


@dataclass
class Taken:
    """What a consumer takes that keeps the highest id and skips what is not above it."""

    ids: list[tuple[int, int, int, int]] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def take(self, row: dict[str, Any]) -> None:
        this = canal.row_id(row)
        if not self.ids or this > self.ids[-1]:
            self.ids.append(this)
            self.values.append(row["after"]["id"])

    def check(self, written: int) -> None:
        """A6, b4: nothing is lost by it. What was not acked when the server changed may come again
        under an id of the new timeline."""
        assert list(dict.fromkeys(self.values)) == list(range(written))
        repeated = len(self.values) - written
        timelines = {timeline for timeline, *_ in self.ids}
        assert len(timelines) > 1
        for timeline in timelines:
            of_it = [
                value
                for this, value in zip(self.ids, self.values, strict=True)
                if this[0] == timeline
            ]
            assert len(set(of_it)) == len(of_it)
        assert repeated <= 100  # a batch


def receive(
    connector: canal.Connector, ids: list[int], enough: Any, taken: Taken | None = None
) -> None:
    deadline = time.monotonic() + 180
    while not enough():
        assert time.monotonic() < deadline, f"{len(ids)}, {ids[-3:]}, {canal.status()}"
        message = connector.get_without_ack(batch_size=100, timeout=0.2)
        if not message:
            continue
        found = []
        for part in message.batches_by_part():
            for row in (row for batch in part for row in batch.to_pylist()):
                assert row["timeline"] == message.timeline
                found.append(row["after"]["id"])
                if taken is not None:
                    taken.take(row)
        with contextlib.suppress(InstanceRestarted):  # then the batch comes again
            connector.ack(message.id)
            ids.extend(found)


def check_cursors(pair: Pair, old: LogPosition) -> None:
    """Without Ray: a cursor of the dead master by GTID, by time, and where the standby lacks what
    it has; then with the standby behind the master's address."""
    settings = {**QUICK, "standby": [pair.standby.address]}
    with contextlib.closing(LiveSource(instance(pair.master, **settings))) as source:
        start = source.resume([old])
        assert source.identity.address == pair.standby.address
        assert start.by_gtid
        assert start.position.gtid == old.position.gtid
        by_gtid = start.position
        ahead = GtidSet.parse(f"{by_gtid.gtid},{old.identity.server_uuid}:1-99999")
        more = replace(old, position=replace(old.position, gtid=str(ahead)))
        with pytest.raises(TransactionsMissing, match="-99999"):
            source.resume([more])
        # Nothing but a time is known: some of it comes twice.
        bare = replace(old.position, gtid="", commit_us=0, timestamp=int(time.time()))
        start = source.resume([replace(old, position=bare)])
        assert start.position <= by_gtid
        assert "twice" in start.how
    pair.standby.kill()
    pair.standby.port = pair.master.port
    pair.standby.start()
    with contextlib.closing(LiveSource(instance(pair.master))) as source:
        start = source.resume([old])
        assert start.position == by_gtid
        assert f"from server {old.identity.server_uuid}" in start.how


def check_moves_without_gtids(pair: Pair, path: str) -> None:
    """Without Ray: the last cursor as if of another server, by what it knows and by its time."""
    manager = MetaManager(open_backend(MetaConfig(path=path)))
    cursor = manager.load("failover")[1].cursor
    manager.close()
    assert cursor is not None
    assert cursor.identity.address == pair.standby.address
    assert len(cursor.position.trail) == TRAIL_MAX * DIGEST_CHARACTERS
    elsewhere = replace(cursor, identity=SourceIdentity("gone:3306", "gone"))
    with contextlib.closing(LiveSource(instance(pair.standby))) as source:
        start = source.resume([elsewhere])
        assert start.position == cursor.position.boundary
        assert start.position.trail == cursor.position.trail
        bare = replace(elsewhere, position=replace(cursor.position, trail=""))
        start = source.resume([bare])
        assert start.position < cursor.position
        assert "some will come twice" in start.how


def test_names_are_resolved_at_each_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        hosts = iter(["127.0.0.1", "127.0.0.2"])
        real = socket.getaddrinfo

        def moved(host: Any, *rest: Any, **more: Any) -> Any:
            return real(next(hosts) if host == "db.example" else host, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", moved)
        for listener in (first, second):
            listener.listen()
            listener.settimeout(10)

            def hang_up(at: socket.socket = listener) -> None:
                at.accept()[0].close()

            answer = threading.Thread(target=hang_up)
            answer.start()
            with pytest.raises(ConnectionLost):
                connect(instance_of(f"db.example:{port}"))
            answer.join(120)
            assert not answer.is_alive()


def instance_of(address: str) -> Any:
    from ray_canal.config import SourceConfig

    return SourceConfig.model_validate({"address": address, "username": "root"})
