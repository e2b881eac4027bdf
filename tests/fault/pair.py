"""Two servers that replicate, one of which is written to: they change places, begin their
logs again, and purge them. What they have logged is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.fault import replication
from tests.fault.truth import Archive, Row, rows_decoded, rows_of
from tests.processes import wait_for
from tests.servers import Server, start
from tests.servers.run import Options

CATCH_UP_MAX_S = 120.0


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
        replication.follow(self.servers[self.standby], self.master)

    def catch_up(self) -> None:
        """Until the standby has all of the other's, which nobody writes to meanwhile."""

        wait_for(
            lambda: len({replication.executed(server) for server in self.servers}) == 1,
            CATCH_UP_MAX_S, "the standby has caught up",
        )  # fmt: skip

    def switch(self) -> int:
        """The standby is written to from now on. Returns who was, whom the caller lets `follow`."""
        self.catch_up()
        old = self.writer
        replication.leave(self.servers[self.standby])
        self.writer = self.standby
        return old

    def reset(self) -> None:
        """Both logs begin again, and their GTIDs."""
        self.catch_up()
        replication.leave(self.servers[self.standby])
        for number in (self.standby, self.writer):
            self.archives[number].keep()
            self.archives[number].end_era()
            replication.begin_again(self.servers[number])
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
            yield (rows_decoded if self.servers[number].is_mariadb else rows_of)(files)


@contextlib.contextmanager
def pair(
    folder: Path, kind: str = "mysql97", more: Options | None = None
) -> Iterator[Pair]:
    """Both run, with these options more; see tests.servers.start."""
    options = {**replication.options(kind), **(more or {})}
    with (
        start(kind, folder / "server0", options) as one,
        start(kind, folder / "server1", {**options, "server-id": "2"}) as two,
    ):
        yield Pair((one, two), folder / "archives")
