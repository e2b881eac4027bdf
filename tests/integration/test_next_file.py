"""A dump goes from one binlog file to the next one, on real servers: is it the same log's?"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ray_canal.errors import PositionNotFound
from tests.dumps import read_until
from tests.integration.test_log_identity import (
    GTIDS_OFF,
    SERVERS_IN_SHORT,
    read_to_an_error,
    reading,
    reset,
    serving,
    write,
)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("mysql97", 5), ("mysql56", 5), ("mariadb", 5), ("mysql97", 0),
        pytest.param("mysql56", 0, marks=pytest.mark.soak),
        pytest.param("mariadb", 0, marks=pytest.mark.soak),
    ],
)  # fmt: skip
def test_a_reset_under_a_dump_that_goes_on_with_the_next_file(
    kind: str, written: int, tmp_path: Path
) -> None:
    """A1: at the end of the file that it still has open the server goes on with the next one, and
    would leave out what the new log has before it."""
    with serving(kind, tmp_path) as server:
        with reading(server, heartbeat_s=0.3) as source:
            source.resume(())
            write(server, 10, 10, files=2)
            write(server, 20, 10)
            assert read_until(source, *server.position())
            server.restart()
        reset(server)
        with reading(server, heartbeat_s=0.3) as source:
            source.resume(())
            write(server, 30, 10)
            read_until(source, *server.position())
            reset(server)
            write(server, 100, written)
            time.sleep(1.5)
            write(server, 200, 5, files=1)
            with pytest.raises(PositionNotFound, match=r"after mysql-bin|another file"):
                read_to_an_error(source)


@pytest.mark.parametrize(("kind", "gtids"), SERVERS_IN_SHORT)
def test_a_file_that_ended_in_a_crash_is_left_for_the_next(
    kind: str, gtids: bool, tmp_path: Path
) -> None:
    """A1: no ROTATE event stands at its end, and it is the server's file all the same."""
    with serving(kind, tmp_path, **({} if gtids else GTIDS_OFF)) as server:
        for end in (server.kill, server.stop, server.kill):
            write(server, 10 * int(server.position()[0][-6:]), 5, files=1)
            end()
            time.sleep(2.5)
            server.start()
        with reading(server, start="earliest") as source:
            source.resume(())
            chunks = read_until(source, *server.position())
        assert {chunk.head.journal_name for chunk in chunks} == {p.name for p in server.binlogs()}
