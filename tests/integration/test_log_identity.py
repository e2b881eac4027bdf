"""Whose log a cursor belongs to, on real servers: reset, restored, replaced, renamed, and large."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import CanalConfig
from ray_canal.errors import (
    ConfigError,
    PositionNotFound,
    SourceError,
    TransactionsMissing,
)
from ray_canal.meta.canal_import import import_meta
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.source import same_log
from ray_canal.source.catalog import Catalog
from ray_canal.source.live import LiveSource
from ray_canal.source.start.search import Search
from tests.dumps import (
    failure,
    instance,
    kinds_of,
    read_until,
)
from tests.integration.test_positions import log_of
from tests.proxy import Proxy
from tests.servers import Server, start


@contextlib.contextmanager
def serving(kind: str, folder: Path, **options: str | None) -> Iterator[Server]:
    """A server of this test's own, with a table to write to."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    with start(kind, folder, named) as server:
        server.execute("CREATE DATABASE l", "CREATE TABLE l.t (id INT PRIMARY KEY, v INT)")
        yield server
        server.kill()


@contextlib.contextmanager
def reading(server: Server, **settings: object) -> Iterator[LiveSource]:
    source = LiveSource(instance(server, **settings))
    try:
        yield source
    finally:
        source.close()


SERVERS = [
    ("mysql97", True), ("mysql97", False), ("mysql56", True), ("mysql56", False), ("mariadb", True)
]  # fmt: skip
"""Kind, and whether GTIDs are on."""

SERVERS_IN_SHORT = [
    ("mysql97", True), ("mysql56", False), ("mariadb", True),
    *(pytest.param(*each, marks=pytest.mark.soak) for each in (SERVERS[1], SERVERS[2])),
]  # fmt: skip
"""Each kind once, and one without GTIDs; the others by `make soak-servers`."""

GTIDS_OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


def reset(server: Server) -> None:
    """RESET, in another second than the log was begun in."""
    time.sleep(1.1)
    new = server.kind == "mysql97"
    server.execute("RESET BINARY LOGS AND GTIDS" if new else "RESET MASTER")


def write(server: Server, first: int, count: int, *, files: int = 0) -> None:
    """A transaction for each id, then so many new files."""
    with contextlib.closing(server.connect()) as connection:
        cursor = connection.cursor()
        for number in range(first, first + count):
            cursor.execute(f"INSERT INTO l.t VALUES ({number}, 1)")
        for _ in range(files):
            cursor.execute("FLUSH BINARY LOGS")


def cursor_at_end(server: Server) -> LogPosition:
    """As a subscriber has it that acked everything."""
    with reading(server) as source:
        end = source.resume(()).position
        assert end.created_s
        identity = source.identity
    with log_of(server) as log:
        around = Search(log).surroundings(end.journal_name, end.position)
    known = replace(end, timestamp=around.before_s, commit_us=around.last_us)
    return LogPosition(identity, known)


def refusal(server: Server, cursor: LogPosition) -> SourceError:
    with reading(server) as source, pytest.raises(SourceError) as caught:
        source.resume([cursor])
    return caught.value


def kinds(lacks: bool) -> type[SourceError]:
    """Which transactions are missing is told while the server has fewer than were delivered."""
    return TransactionsMissing if lacks else PositionNotFound


def read_to_an_error(source: LiveSource) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        source.read(0.0, 0.2)


def known_less(cursor: LogPosition) -> list[LogPosition]:
    """The cursor, and as an earlier version had written it."""
    return [cursor, replace(cursor, position=replace(cursor.position, created_s=0))]


@pytest.mark.parametrize(("kind", "gtids"), SERVERS)
def test_a_reset_while_nobody_reads(kind: str, gtids: bool, tmp_path: Path) -> None:
    """A1, A12: RESET under a stopped destination: whatever the log has grown to since, and whether
    there is a file of the cursor's number, the cursor is refused; nothing is skipped."""
    with serving(kind, tmp_path, **({} if gtids else GTIDS_OFF)) as server:
        write(server, 0, 20, files=2)
        write(server, 20, 5)
        cursor = cursor_at_end(server)
        with reading(server) as source:
            start = source.resume(known_less(cursor))
            assert start.position == cursor.position
            assert start.same_log
        reset(server)
        steps = [
            (0, 0),  # nothing is there
            (10, 0),  # less than there was, and no such file
            (2, 2),  # a file of that number
            (60, 1),  # more than there was
        ]
        first = 100
        for count, files in steps:
            write(server, first, count, files=files)
            first += count
            for known in known_less(cursor):
                error = refusal(server, known)
                assert isinstance(error, kinds(gtids and first < 160))
                assert error.other_log
                assert "on_reset" in str(error)
        with reading(server, on_reset="earliest") as source:
            start = source.resume([cursor])
            assert (start.position.journal_name, start.position.position) == ("mysql-bin.000001", 4)
            assert not start.same_log
            chunks = read_until(source, *server.position())
            assert chunks[0].head.position == 4


@pytest.mark.parametrize("files", [0, 2])
@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_a_reset_under_a_dump(
    kind: str, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: RESET under a running destination ends its reading, by the server's word or, where that
    says nothing, by a look at the log."""
    monkeypatch.setattr(same_log, "_SILENT_LOG_S", 1.0)
    with serving(kind, tmp_path) as server:
        write(server, 0, 10, files=files)
        with reading(server, heartbeat_s=0.3, reconnect_max_s=0.5) as source:
            source.resume(())
            write(server, 10, 10)
            read_until(source, *server.position())
            reset(server)
            write(server, 100, 50)
            with pytest.raises(SourceError) as caught:
                read_to_an_error(source)
        assert not caught.value.retryable


@pytest.mark.parametrize(("kind", "gtids"), SERVERS_IN_SHORT)
def test_a_reset_while_the_connection_is_away(kind: str, gtids: bool, tmp_path: Path) -> None:
    """A1: a reconnect within a generation looks whose file it is, too: here the number exists
    again, and at the offset a transaction begins again."""
    with serving(kind, tmp_path, **({} if gtids else GTIDS_OFF)) as server:
        server.execute("DROP DATABASE l")
        reset(server)
        proxy = Proxy((server.host, server.port))
        settings = {"address": proxy.address, "reconnect_max_s": 0.5}
        with reading(server, start="earliest", **settings) as source:
            source.resume(())
            again(server, 10)
            place = server.position()
            read_until(source, *place)
            proxy.refuse(True)
            reset(server)
            again(server, 30)
            events = server.execute(f"SHOW BINLOG EVENTS IN '{place[0]}'")
            assert place[1] in {int(row[1]) for row in events}
            assert source.read(0.0, 0.5) is None
            proxy.refuse(False)
            with pytest.raises(PositionNotFound, match="is another file than before"):
                read_to_an_error(source)


def again(server: Server, count: int) -> None:
    """The same transactions in the log, in the same bytes but for times."""
    with contextlib.closing(server.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("DROP DATABASE IF EXISTS l")
        cursor.execute("SET sql_log_bin = 1")
        cursor.execute("CREATE DATABASE l")
        cursor.execute("CREATE TABLE l.t (id INT PRIMARY KEY, v INT)")
    write(server, 0, count)


@pytest.mark.parametrize(("kind", "gtids"), SERVERS_IN_SHORT)
def test_a_restored_copy(kind: str, gtids: bool, tmp_path: Path) -> None:
    """A1: a server that was put back to an older copy of its data has the same identity. A cursor
    from before the copy goes on; one from behind it is refused, also when the log has grown past
    it."""
    with serving(kind, tmp_path, **({} if gtids else GTIDS_OFF)) as server:
        write(server, 0, 10, files=1)
        write(server, 10, 3)
        early = cursor_at_end(server)
        write(server, 13, 3)
        server.stop()
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-a", "--sparse=always", str(server.datadir), str(copy)], check=True)
        server.start()
        write(server, 100, 10)
        late = cursor_at_end(server)
        with reading(server) as source:
            assert source.resume(known_less(late)).same_log
        server.stop()
        shutil.rmtree(server.datadir)
        copy.rename(server.datadir)
        time.sleep(1.1)
        server.start()
        first = 1000
        for count in (0, 10, 40):  # less, as much to the byte, more
            write(server, first, count)
            first += count
            for known in known_less(late):
                error = refusal(server, known)
                assert isinstance(error, kinds(gtids and first < 1010))
                assert error.other_log
        with reading(server) as source:
            start = source.resume(known_less(early))
            assert start.position == early.position
            assert start.same_log
            chunks = read_until(source, *server.position())
            assert chunks[0].head.position == early.position.position


@pytest.mark.parametrize("server_id", ["1", "7"])
def test_a_replaced_mariadb(server_id: str, tmp_path: Path) -> None:
    """A12: another MariaDB behind the address, with the server_id of the one before (1 by default)
    or not: its log is not the cursor's, whatever its sequence numbers say."""
    with serving("mariadb", tmp_path / "old") as server:
        write(server, 0, 10)
        cursor = cursor_at_end(server)
    time.sleep(1.1)
    with serving("mariadb", tmp_path / "new", server_id=server_id) as server:
        for first, count in ((0, 5), (5, 5), (10, 30)):  # less, as much, more
            write(server, first, count)
            for known in known_less(cursor):
                error = refusal(server, known)
                assert isinstance(error, kinds(first == 0 or server_id != "1"))
                assert error.other_log == (server_id == "1")


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_gtid_sets_over_1024_characters(kind: str, tmp_path: Path) -> None:
    """b5: SHOW VARIABLES cuts GTID sets; a move to another server compares them whole."""
    sources = [str(uuid.UUID(int=number << 64 | 1)) for number in range(40)]
    purged = ",".join(f"{source}:1-{n + 1000}" for n, source in enumerate(sources))
    with serving(kind, tmp_path) as server:
        if kind == "mysql56":
            server.execute("RESET MASTER", f"SET GLOBAL gtid_purged = '{purged}'")
        else:
            server.execute(f"SET GLOBAL gtid_purged = '+{purged}'")
        server.execute("INSERT INTO l.t VALUES (1, 1)", "FLUSH BINARY LOGS")
        catalog = Catalog(instance(server).source)
        wanted = GtidSet.parse(purged)
        assert len(purged) > 1024
        assert wanted.issubset(GtidSet.parse(catalog.gtid_executed()))
        assert wanted.issubset(GtidSet.parse(catalog.gtid_purged()))
        place = catalog.position()
        catalog.close()
        server.execute("INSERT INTO l.t VALUES (2, 2)")
        elsewhere = SourceIdentity("gone:3306", str(uuid.uuid4()))
        moved = LogPosition(elsewhere, EntryPosition("mysql-bin.000077", 99, gtid=place.gtid))
        with reading(server) as source:
            assert source.resume([moved]).position == place
            read_until(source, *server.position())
            more = GtidSet.parse(f"{place.gtid},{sources[-1]}:5000")
            ahead = LogPosition(elsewhere, EntryPosition("mysql-bin.000077", 99, gtid=str(more)))
            with pytest.raises(TransactionsMissing, match=f": {sources[-1]}:5000;"):
                source.resume([ahead])


def _acked_event(server: Server) -> tuple[str, int, int, int]:
    """Commit two rows; return the log's file, where its last event begins and ends, and its time in
    milliseconds."""
    with contextlib.closing(server.connect(autocommit=False)) as connection:
        connection.cursor().execute("INSERT INTO im.t VALUES (1), (2)")
        connection.commit()
    name, end = server.position()
    acked = next(
        int(row[1]) for row in server.execute(f"SHOW BINLOG EVENTS IN '{name}'")
        if int(row[4]) == end
    )  # fmt: skip
    written = (server.datadir / name).read_bytes()
    return name, acked, end, 1000 * int.from_bytes(written[acked : acked + 4], "little")


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_canals_cursors_are_tied_to_their_server(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    """b7, a14: an imported cursor goes on in its own server's log, is refused at any other one, and
    is moved from a server that is named."""
    server: Server = request.getfixturevalue(kind)
    time.sleep(1.1)  # later than the server's log
    server.execute("CREATE DATABASE IF NOT EXISTS im", "CREATE TABLE im.t (id INT PRIMARY KEY)")
    try:
        name, acked, end, time_ms = _acked_event(server)
        server.execute("INSERT INTO im.t VALUES (3)")
        dat = tmp_path / "meta.dat"

        def imported(address: str, position: int = acked, **how: Any) -> LogPosition:
            host, _, port = address.partition(":")
            place = {"journalName": name, "position": position, "timestamp": time_ms}
            of = {"sourceAddress": {"address": host, "port": int(port)}}
            client = {"clientIdentity": {"clientId": 1}, "cursor": {"identity": of}}
            client["cursor"]["postion"] = place
            dat.write_text(json.dumps({"destination": "d", "clientDatas": [client]}))
            (subscriber,) = import_meta(config, dat, replace=True, **how)[1]
            assert subscriber.cursor is not None
            return subscriber.cursor

        config = CanalConfig(instance=(instance(server),), meta={"path": str(tmp_path / "m.db")})
        for address in (server.address, f"localhost:{server.port}"):
            cursor = imported(address)
            assert cursor.identity.server_uuid
            assert cursor.position.created_s
            with reading(server) as source:
                start = source.resume([cursor])
                assert start.same_log
                assert start.position == cursor.position
                assert source.identity.server_uuid == cursor.identity.server_uuid
                chunks = read_until(source, *server.position())
            # The transaction comes again, but what lies before its last entry is consumed.
            assert chunks[0].head.position < acked
            assert cursor.position.entry >= 1 + (kind != "mariadb")
        with pytest.raises(ConfigError, match="--server-uuid"):
            imported("old-master.example:3306")
        own = cursor.identity.server_uuid
        assert imported("old-master.example:3306", server_uuid=own) == cursor
        elsewhere = imported("old-master.example:3306", server_uuid=str(uuid.uuid4()))
        with reading(server) as source:  # by time
            assert elsewhere.is_foreign(cursor.identity)
            assert source.resume([elsewhere]).position <= cursor.position
        for wrong in (acked + 1, end + 100_000):
            with pytest.raises(ConfigError, match="is not in the log of"):
                imported(server.address, wrong)
            unchecked = imported(server.address, wrong, unchecked=True)
            assert refusal(server, unchecked).other_log
    finally:
        server.execute("DROP DATABASE im")


FAR = (1 << 32) + 4711
"""An offset that 32 bits do not hold."""


def lengthened(path: Path, position: int) -> None:
    """Move all that a binlog file has from a position on to FAR, with a hole before it."""
    data = path.read_bytes()
    tail, at = bytearray(data[position:]), 0
    while at < len(tail):
        size = int.from_bytes(tail[at + 9 : at + 13], "little")
        end = FAR + at + size & 0xFFFFFFFF
        tail[at + 13 : at + 17] = end.to_bytes(4, "little")
        tail[at + size - 4 : at + size] = zlib.crc32(tail[at : at + size - 4]).to_bytes(4, "little")
        at += size
    with open(path, "r+b") as file:
        file.truncate(position)
        file.seek(FAR)
        file.write(tail)


@pytest.mark.parametrize(
    ("kind", "gtids"), [("mysql97", True), ("mysql56", True), ("mysql97", False)]
)
def test_offsets_beyond_4_gib(kind: str, gtids: bool, tmp_path: Path) -> None:
    """B7: a cursor behind a transaction that made the file longer than 4 GiB goes on there; where a
    server cannot be asked for that, it is said."""
    with serving(kind, tmp_path, **({} if gtids else GTIDS_OFF)) as server:
        write(server, 0, 3)
        cursor = cursor_at_end(server)
        write(server, 10, 3, files=1)
        write(server, 20, 2)
        server.stop()
        name = cursor.position.journal_name
        lengthened(server.datadir / name, cursor.position.position)
        server.start()
        place = replace(cursor.position, position=FAR)
        if kind == "mysql56" or not gtids:
            error = failure(instance(server), place)
            assert isinstance(error, PositionNotFound)
            assert "below 4 GiB" in str(error)
            return
        with reading(server, reconnect_max_s=0.3) as source:
            start = source.resume([LogPosition(cursor.identity, place)])
            assert start.position == place
            chunks = read_until(source, *server.position())
        assert chunks[0].head.position == FAR
        rows = [kind for chunk in chunks for kind in kinds_of(chunk) if kind in (23, 30)]
        assert len(rows) == 5


@pytest.mark.parametrize("gtids", [True, False])
def test_a_reset_within_a_second(gtids: bool, tmp_path: Path) -> None:
    """A1: a file of the same name and age, as long and with as many transactions, is another one by
    the microsecond of its commits."""

    def begin_anew(number: int) -> None:
        with contextlib.closing(server.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SET timestamp = {now}")  # as if all were in one second
            cursor.execute("RESET BINARY LOGS AND GTIDS")
            for row in range(3):
                cursor.execute(f"INSERT INTO l.t VALUES ({number + row}, 1)")

    with serving("mysql97", tmp_path, **({} if gtids else GTIDS_OFF)) as server:
        now = int(time.time())
        begin_anew(100)
        cursor = cursor_at_end(server)
        assert cursor.position.created_s == cursor.position.timestamp == now
        with reading(server) as source:
            assert source.resume([cursor]).same_log
        begin_anew(200)
        assert refusal(server, cursor).other_log
