"""Where reading starts, on real servers: searches over many files, and what is said of purged ones.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.binlog.chunk import RawChunk
from ray_canal.errors import (
    ConnectionLost,
    PositionNotFound,
    PositionPurged,
    TransactionsMissing,
)
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.start import Start
from ray_canal.source.catalog import Catalog
from ray_canal.source.gtid_sets import missing_gtids
from ray_canal.source.lag import LagMeter
from ray_canal.source.live import LiveSource
from ray_canal.source.start import lookup
from ray_canal.source.start.decision import decide
from ray_canal.source.start.log_file import MICROS, transactions
from ray_canal.source.start.search import Search
from ray_canal.source.start.server_log import ServerLog
from tests.dumps import (
    dump_threads,
    instance,
    opened,
    purge_all,
    read_until,
)
from tests.fault.pair import pair
from tests.integration.test_main_job import deployment
from tests.servers import Server, start

FILES = 500


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MySQL 9.7 with a transaction in each of 500 binlog files."""
    with start("mysql97", tmp_path_factory.mktemp("many")) as server:
        with contextlib.closing(server.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE DATABASE many")
            cursor.execute("CREATE TABLE many.t (id INT PRIMARY KEY, v VARCHAR(50))")
            for number in range(FILES - 1):
                cursor.execute(f"INSERT INTO many.t VALUES ({number}, 'x'), ({-1 - number}, 'y')")
                cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("INSERT INTO many.t VALUES (1000000, 'last')")
        yield server
        server.kill()  # nothing of it is wanted any more


@contextlib.contextmanager
def log_of(server: Server, kind: type[ServerLog] = ServerLog) -> Iterator[ServerLog]:
    source = instance(server).source
    wake, writer = os.pipe()
    catalog = Catalog(source)
    try:
        yield kind(source, catalog, wake)
    finally:
        catalog.close()
        os.close(wake)
        os.close(writer)


def test_a_time_among_500_files_takes_few_reads(many_files: Server) -> None:
    with log_of(many_files) as log:
        names = [name for name, _ in log.files()]
        assert len(names) >= FILES
        heads_max = math.ceil(math.log2(len(names))) + 2
        for number in (1, 250, len(names) - 2):
            some = next(transactions(log, names[number]))
            time_us = int(some.time_us[0])
            for wanted_us, file, index in (
                (time_us, number, 0),  # exactly this transaction
                (time_us + 1, number + 1, 0),  # a microsecond later: the next one
            ):
                log.read.clear()
                found = Search(log).time(wanted_us)
                assert found is not None
                wanted = next(transactions(log, names[file]))
                assert found == EntryPosition(names[file], int(wanted.position[index]))
                assert found.gtid
                read = log.read[:-1]  # the last one was ours
                assert len(read) <= heads_max + 2, read  # each head once; two files walked
                assert len(set(read)) <= heads_max


def test_a_place_is_looked_up_by_offset_time_and_gtid(many_files: Server) -> None:
    """What `ray-canal position` says: each name of a transaction leads to it, in few reads."""
    config = instance(many_files)
    with lookup.log_of(config) as log:
        name = log.files()[300][0]
        some = next(transactions(log, name))
        place = f"{name}:{some.position[0]}"
        found = lookup.locate(config.source, log, place)
        assert (str(found.place), found.commit_us) == (place, some.time_us[0])
        seconds, micros = divmod(found.commit_us, MICROS)
        time_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}Z"
        for text in (found.gtid, time_text):
            assert isinstance(log, ServerLog)
            log.read.clear()
            assert lookup.locate(config.source, log, text) == found
            assert len(set(log.read)) <= math.ceil(math.log2(FILES)) + 4
        seek = lookup.locate(config.source, log, found.place.gtid, looking=False)
        assert seek.cursor.position == found.place
        assert seek.cursor.identity.server_uuid == found.identity.server_uuid != ""
        with pytest.raises(PositionNotFound, match="past the end"):
            lookup.locate(config.source, log, f"{name}:{1 << 31}")


def test_a_destination_starts_at_a_time(many_files: Server) -> None:
    with log_of(many_files) as log:
        names = [name for name, _ in log.files()]
        some = next(transactions(log, names[400]))
    time = str(some.time_us[0] // 1000)  # Canal's milliseconds
    with opened(instance(many_files, start="timestamp", timestamp=time)) as source:
        assert isinstance(source, LiveSource)
        chunks = read_until(source, *many_files.position())
    assert chunks[0].head.journal_name in (names[400], names[399])
    assert chunks[0].head.position > 4


def test_a_position_inside_a_transaction_goes_back(many_files: Server) -> None:
    many_files.execute("FLUSH BINARY LOGS", "INSERT INTO many.t VALUES (2000000, 'a')")
    name, end = many_files.position()
    events = many_files.execute(f"SHOW BINLOG EVENTS IN '{name}'")
    begin = next(int(row[1]) for row in events if row[2] == "Gtid")
    executed = many_files.execute("SELECT @@gtid_executed")[0][0].replace("\n", "")
    for row in events:
        position = int(row[1])
        config = instance(many_files, start="position", journal_name=name, position=position)
        with contextlib.closing(LiveSource(config)) as source:
            found = source.open(None)
        assert found.position == (position if position <= begin else begin)
    config = instance(many_files, start="position", journal_name=name, position=end)
    with opened(config) as source:
        at = source.resume(()).position
        assert (at.position, at.gtid) == (end, executed)


@pytest.mark.parametrize("kind", ["mysql56", "mariadb"])
def test_times_and_gtids_on_older_servers(request: pytest.FixtureRequest, kind: str) -> None:
    """Where only seconds are written, a second's transactions all come."""
    server: Server = request.getfixturevalue(kind)
    server.execute("CREATE DATABASE older", "CREATE TABLE older.t (id INT)")
    try:
        for number in range(4):
            server.execute("FLUSH LOGS", f"INSERT INTO older.t VALUES ({number})")
        with log_of(server) as log:
            names = [name for name, _ in log.files()][-4:]
            search = Search(log)
            for name in names:
                some = next(transactions(log, name))
                time_us = int(some.time_us[0])
                found = search.time(time_us + MICROS // 2)
                if found is None:  # the log itself began in that second
                    assert search.first.created_s >= time_us // MICROS
                else:
                    assert found <= EntryPosition(name, int(some.position[0]))
                place = search.boundary(name, int(some.position[0]))
                assert place.gtid
                assert search.gtids(place.gtid) == place
            assert search.gtids(log.executed()) == log.end()
    finally:
        server.execute("DROP DATABASE older")


def test_what_is_written_during_a_search_comes(server: Server) -> None:
    """A cursor of another server that has all up to now: what commits after the log was looked at
    is neither passed over nor counted among what was delivered."""
    server.execute("CREATE DATABASE during", "CREATE TABLE during.t (id INT)")
    numbers = itertools.count()

    class Busy(ServerLog):
        def chunks(self, journal_name: str, chunk_bytes: int) -> Iterator[RawChunk]:
            yield from super().chunks(journal_name, chunk_bytes)
            server.execute(f"INSERT INTO during.t VALUES ({next(numbers)})")

    try:
        source = instance(server).source
        with log_of(server) as log:
            end = log.end()
        there = SourceIdentity("127.0.0.1:1", "11111111-2222-3333-4444-555555555555")
        with log_of(server, Busy) as log:
            found = decide(source, [LogPosition(there, end)], log)
        assert next(numbers) > 0
        assert found.position <= end
        assert not missing_gtids(found.position.gtid, end.gtid)
    finally:
        server.execute("DROP DATABASE during")


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_a_slow_transaction_is_the_same_on_both_servers(kind: str, tmp_path: Path) -> None:
    """A replica gives a transaction's GTID and its end other times than the server where it was
    written does: a cursor behind it is believed all the same, in both directions. Once both have
    begun their GTIDs again and have come as far, it is not."""
    with pair(tmp_path, kind) as servers:
        servers.master.execute("CREATE DATABASE slow", "CREATE TABLE slow.t (id INT)")
        with servers.master.connect(autocommit=False) as connection:
            connection.cursor().execute("INSERT INTO slow.t VALUES (1)")
            time.sleep(2.2)
            connection.commit()
        servers.catch_up()
        cursors, places = [], []
        for server in servers.servers:
            with log_of(server) as log:
                end = log.end()
                around = Search(log).surroundings(end.journal_name, end.position)
                known = replace(end, timestamp=around.before_s, commit_us=around.last_us)
                cursors.append(LogPosition(log.identity, known))
                places.append(end)
        for server, place, cursor in zip(servers.servers, places, reversed(cursors), strict=True):
            with log_of(server) as log:
                assert decide(instance(server).source, [cursor], log).position == place
        time.sleep(1.1)
        servers.reset()
        statements = [f"CREATE DATABASE later{number}" for number in range(4)]
        servers.master.execute(*statements)
        servers.catch_up()
        for server, cursor in zip(servers.servers, reversed(cursors), strict=True):
            with log_of(server) as log, pytest.raises(TransactionsMissing) as caught:
                decide(instance(server).source, [cursor], log)
            assert caught.value.other_log


@contextlib.contextmanager
def closing_source(server: Server, **settings: Any) -> Iterator[LiveSource]:
    source = LiveSource(instance(server, **settings))
    try:
        yield source
    finally:
        source.close()


def purged_cursor(server: Server) -> LogPosition:
    """A cursor from before a purge of all files but the present one."""
    server.execute("CREATE DATABASE IF NOT EXISTS gone")
    with opened(instance(server)) as source:
        at = source.resume(()).position
        cursor = LogPosition(source.identity, replace(at, timestamp=int(time.time())))
    server.execute("CREATE TABLE gone.t (id INT)", "INSERT INTO gone.t VALUES (1)")
    purge_all(server)
    server.execute("INSERT INTO gone.t VALUES (2)")
    return cursor


def test_a_purge_while_nobody_reads(server: Server) -> None:
    cursor = purged_cursor(server)
    try:
        with closing_source(server) as source, pytest.raises(PositionPurged) as caught:
            source.resume([cursor])
        lost = caught.value.lost
        assert lost is not None
        assert lost.start == str(cursor.position)
        file, _ = server.position()
        assert lost.end == f"{file}:4"
        if server.is_mariadb:  # the position up to which all is gone
            assert lost.gtids.startswith("0-1-")
        else:  # CREATE TABLE and the first INSERT
            assert len(GtidSet.parse(lost.gtids)) == 2
        assert 0 < lost.start_time <= lost.end_time + 1
        assert lost.gtids in str(caught.value)

        with closing_source(server, on_purged="earliest") as source:
            start = source.resume([cursor])
            assert start.position == start.cursors[0] == EntryPosition(file, 4)
            assert lost.gtids in start.how
            chunks = read_until(source, *server.position())
        assert chunks[0].head.position == 4

        with closing_source(server, on_purged="latest") as source:
            start = source.resume([cursor])
            assert start.position == EntryPosition(*server.position())
    finally:
        server.execute("DROP DATABASE gone")


def test_a_search_ends_when_the_source_is_interrupted(many_files: Server) -> None:
    settings = {"start": "earliest", "heartbeat_s": 0.2, "read_timeout_s": 1.0}
    with closing_source(many_files, **settings) as source:
        source.interrupt()
        with pytest.raises(ConnectionLost):
            source.open(None)


@pytest.mark.parametrize("start", ["latest", "gtid"])
def test_what_has_to_be_known_first_keeps_no_dump_waiting(server: Server, start: str) -> None:
    """The catalog is read before the dump begins; by GTID alone, when the server has said where
    that is."""
    server.execute("CREATE DATABASE IF NOT EXISTS known", "DROP DATABASE known")  # it has GTIDs
    with log_of(server) as log:
        executed = log.executed() if start == "gtid" else ""
    before = set(dump_threads(server))
    seen: list[tuple[EntryPosition, bool]] = []

    def decided(found: Start, identity: SourceIdentity) -> None:
        assert identity.address == server.address
        seen.append((found.position, bool(set(dump_threads(server)) - before)))

    with closing_source(server, start=start, gtid_set=executed) as source:
        at = source.resume((), decided=decided).position
        assert seen == [(at, start == "gtid")]
        assert at.journal_name == server.position()[0]
        assert set(dump_threads(server)) - before


def test_the_distance_to_the_purge_horizon(server: Server) -> None:
    """In bytes and in time, and the warning before, as the server's own retention has it."""
    retention = ("expire_logs_days", 1) if server.kind == "mysql56" else (
        "binlog_expire_logs_seconds", 86_400
    )  # fmt: skip
    server.execute("FLUSH BINARY LOGS")
    name, position = server.position()
    now = int(time.time())
    with server.with_global(retention[0], str(retention[1])):
        for hours, age_s, last, warned in (
            (2.0, 3600, True, False),
            (2.0, 3600, False, False),
            (24.0, 3600, False, True),
            (2.0, 90_000, False, True),
        ):
            if not last and server.position()[0] == name:
                server.execute("FLUSH BINARY LOGS")
            meter = LagMeter(instance(server, purge_warning_hours=hours).source)
            found = meter.purge_distance(EntryPosition(name, position, timestamp=now - age_s))
            meter.close()
            assert found is not None
            files = server.execute("SHOW BINARY LOGS")
            before = sum(int(row[1]) for row in files[: [r[0] for r in files].index(name)])
            assert found.bytes == before + position
            assert bool(found.warning) == warned, found
            if last:  # the server does not purge what it writes
                assert found.seconds is None
            else:
                assert found.seconds == pytest.approx(86_400 - age_s, abs=60)
            assert not warned or name in found.warning


def test_a_destination_whose_files_were_purged(
    mysql97: Server, local_ray: None, tmp_path: Path
) -> None:
    """Stopped, purged, started: an error that names the range; then on_purged goes on."""
    mysql97.execute("CREATE DATABASE after", "CREATE TABLE after.t (id INT PRIMARY KEY)")
    config = deployment(mysql97, "purged", tmp_path / "meta.db")
    canal.start(config)
    try:
        with canal.connect("purged", client_id=1) as connector:
            connector.subscribe()
            mysql97.execute("INSERT INTO after.t VALUES (1)")
            _receive(connector, {1})
        status = canal.status("purged")["purged"]
        assert status["purge"].bytes > 0
        canal.stop("purged")

        mysql97.execute("INSERT INTO after.t VALUES (2)")
        purge_all(mysql97)
        mysql97.execute("INSERT INTO after.t VALUES (3)")
        with pytest.raises(PositionPurged, match="on_purged") as caught:
            canal.start(config)
        assert caught.value.lost is not None
        assert len(GtidSet.parse(caught.value.lost.gtids)) == 1

        config["instance"][0]["source"]["on_purged"] = "earliest"
        canal.start(config)
        with canal.connect("purged", client_id=1) as connector:
            connector.subscribe()
            _receive(connector, {3})
        assert caught.value.lost.gtids in canal.status("purged")["purged"]["start"]
    finally:
        if "purged" in canal.status():
            canal.stop("purged")
        mysql97.execute("DROP DATABASE after")


def _receive(connector: canal.Connector, ids: set[int]) -> None:
    """Exactly these ids of after.t come, and are acked."""
    received: set[int] = set()
    deadline = time.monotonic() + 180
    while not ids <= received:
        assert time.monotonic() < deadline, received
        message = connector.get_without_ack(batch_size=100, timeout=0.2)
        if message:
            for part in message.batches_by_part():
                for batch in part:
                    received.update(row["after"]["id"] for row in batch.to_pylist())
            connector.ack(message.id)
    assert received == ids
