"""Two MySQL servers that replicate, one of which is written to: they change places, begin their
logs again, and purge them. What they have logged is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.fault.truth import Archive, Row, rows_of
from tests.processes import wait_for
from tests.servers import Server, start

CATCH_UP_MAX_S = 120.0
_OPTIONS = {"skip-replica-start": "ON", "max-binlog-size": "64M"}


class Pair:
    """Servers are named by their index: 0 and 1."""

    def __init__(self, servers: tuple[Server, Server], archives: Path) -> None:
        self.servers = servers
        self.writer = 0
        self.archives = tuple(
            Archive(server, archives / str(number)) for number, server in enumerate(servers)
        )
        self.follow()

    @property
    def standby(self) -> int:
        return 1 - self.writer

    @property
    def master(self) -> Server:
        """The one that is written to."""
        return self.servers[self.writer]

    def follow(self) -> None:
        """The standby replicates what is written to the other one."""
        self.servers[self.standby].execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={self.master.port},"
            " SOURCE_USER='root', GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1,"
            " SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=100000, SOURCE_HEARTBEAT_PERIOD=2",
            "START REPLICA",
        )

    def catch_up(self) -> None:
        """Until the standby has all of the other's, which nobody writes to meanwhile."""

        def executed(server: Server) -> str:
            return str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0])

        wait_for(
            lambda: executed(self.servers[self.standby]) == executed(self.master),
            CATCH_UP_MAX_S, "the standby has caught up",
        )  # fmt: skip

    def switch(self) -> int:
        """The standby is written to from now on. Returns who was, whom the caller lets `follow`."""
        self.catch_up()
        old = self.writer
        self.servers[self.standby].execute("STOP REPLICA", "RESET REPLICA ALL")
        self.writer = self.standby
        return old

    def reset(self) -> None:
        """Both logs begin again, and their GTIDs."""
        self.catch_up()
        self.servers[self.standby].execute("STOP REPLICA", "RESET REPLICA ALL")
        for number in (self.standby, self.writer):
            self.archives[number].keep()
            self.archives[number].end_era()
            self.servers[number].execute("RESET BINARY LOGS AND GTIDS")
        self.follow()

    def purge(self, number: int) -> None:
        """All files but a new one are gone."""
        self.servers[number].execute("FLUSH BINARY LOGS")
        self.archives[number].keep()
        name, _ = self.servers[number].position()
        self.servers[number].execute(f"PURGE BINARY LOGS TO '{name}'")

    def logged(self, number: int) -> Iterator[Iterator[Row]]:
        """The rows of each era in that server's log."""
        self.archives[number].keep()
        for files in self.archives[number].eras():
            yield rows_of(files)


@contextlib.contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Both run; see tests.servers.start."""
    with (
        start("mysql97", folder / "server0", _OPTIONS) as one,
        start("mysql97", folder / "server1", {**_OPTIONS, "server-id": "2"}) as two,
    ):
        yield Pair((one, two), folder / "archives")
