"""How two servers of a kind replicate by GTID: in the words of MySQL 9, MySQL 5.6, MariaDB."""

from __future__ import annotations

from tests.servers import Server

_OPTIONS: dict[str, dict[str, str | None]] = {
    "mysql97": {"skip-replica-start": "ON"},
    "mysql56": {"skip-slave-start": "ON"},
    "mariadb": {"skip-slave-start": "ON", "log-slave-updates": "ON", "gtid-strict-mode": "ON"},
}


def options(kind: str) -> dict[str, str | None]:
    """A server's, where two of this kind replicate."""
    return {**_OPTIONS[kind], "max-binlog-size": "64M"}


def follow(standby: Server, master: Server) -> None:
    """The standby replicates what is written to the other one, from what it has on."""
    where = f"HOST='127.0.0.1', PORT={master.port}, USER='root', CONNECT_RETRY=1"
    where += ", HEARTBEAT_PERIOD=2, "
    if standby.kind == "mysql97":
        where += "RETRY_COUNT=100000, AUTO_POSITION=1"
        source = ", ".join(f"SOURCE_{each}" for each in where.split(", "))
        standby.execute(
            f"CHANGE REPLICATION SOURCE TO {source}, GET_SOURCE_PUBLIC_KEY=1", "START REPLICA"
        )
        return
    if standby.is_mariadb:
        where += "USE_GTID=slave_pos"
        standby.execute("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")
    else:
        where += "RETRY_COUNT=100000, AUTO_POSITION=1"
    source = ", ".join(f"MASTER_{each}" for each in where.split(", "))
    standby.execute(f"CHANGE MASTER TO {source}", "START SLAVE")


def leave(standby: Server) -> None:
    """It replicates no more."""
    word = "REPLICA" if standby.kind == "mysql97" else "SLAVE"
    standby.execute(f"STOP {word}", f"RESET {word} ALL")


def executed(server: Server) -> str:
    """The GTIDs that a server's log has."""
    name = "gtid_binlog_pos" if server.is_mariadb else "gtid_executed"
    return str(server.execute(f"SELECT @@GLOBAL.{name}")[0][0])


def begin_again(server: Server) -> None:
    """Its log begins again, and its GTIDs. It replicates nothing."""
    if server.kind == "mysql97":
        server.execute("RESET BINARY LOGS AND GTIDS")
        return
    server.execute("RESET MASTER")
    if server.is_mariadb:
        server.execute("SET GLOBAL gtid_slave_pos = ''")
