"""Where reading starts, on real servers: searches over many files, and what is said of purged ones.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator

import pytest

from ray_canal.driver.catalog import Catalog
from ray_canal.driver.live import LiveSource
from ray_canal.driver.log_search import MICROS, Search, transactions
from ray_canal.driver.server_log import ServerLog
from ray_canal.protocol.position import EntryPosition
from tests.integration.test_driver import instance, opened, read_until
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
def log_of(server: Server) -> Iterator[ServerLog]:
    source = instance(server).source
    wake, writer = os.pipe()
    catalog = Catalog(source)
    try:
        yield ServerLog(source, catalog, wake)
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
        source = LiveSource(config)
        try:
            found = source.open(None)
        finally:
            source.close()
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


def test_a_search_ends_when_the_source_is_interrupted(many_files: Server) -> None:
    from ray_canal.errors import ConnectionLost

    config = instance(many_files, start="earliest", heartbeat_s=0.2, read_timeout_s=1.0)
    source = LiveSource(config)
    source.interrupt()
    try:
        with pytest.raises(ConnectionLost):
            source.open(None)
    finally:
        source.close()


