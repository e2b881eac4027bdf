"""The text of statements in front of their rows, from real servers: a filter keeps both back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from tests.in_process_sink import destination
from tests.servers import Server


def told(connector: Connector, last_id: int) -> tuple[list[str], int]:
    """Return the statements that come until the subscriber has this row, and how many transactions
    do."""
    texts: list[str] = []
    begins = 0
    ids: list[int] = []
    deadline = time.monotonic() + 60
    while last_id not in ids:
        assert time.monotonic() < deadline, (ids, texts)
        message = connector.get_without_ack(1000, 1.0)
        if message:
            ids += [row["after"]["id"] for some in message.batches for row in some.to_pylist()]
            for entry in message.entries:
                begins += entry.entryType == pb.TRANSACTIONBEGIN
                if entry.entryType == pb.ROWDATA and entry.header.eventType == pb.QUERY:
                    texts.append(pb.RowChange.FromString(entry.storeValue).sql)
            connector.ack(message.id)
    return texts, begins


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
@pytest.mark.parametrize("whose", ["subscriber", "destination"])
def test_a_filter_keeps_back_the_text_of_a_statement_as_its_rows(
    whose: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """MariaDB writes it by default: every transaction of any other table came, with its values."""
    server: Server = request.getfixturevalue(kind)
    name = "annotate_row_events" if kind == "mariadb" else "rows_query_log_events"
    wanted = r"noted\.wanted"
    tables = wanted if whose == "destination" else r".*\..*"
    source = {"address": server.address, "username": "root"}
    with server.with_database("noted"), server.with_global(f"binlog_{name}", "ON"):
        server.execute(
            "CREATE TABLE noted.wanted (id INT PRIMARY KEY)",
            "CREATE TABLE noted.other LIKE noted.wanted",
        )
        with (
            destination(tmp_path, source=source, filter={"tables": tables}),
            Connector(RayTransport("x"), 7) as connector,
        ):
            connector.subscribe(wanted)
            server.execute(
                *(f"INSERT INTO noted.other VALUES ({number})" for number in range(50)),
                "INSERT INTO noted.wanted VALUES (1)",
                "BEGIN",
                "INSERT INTO noted.other VALUES (98)",
                "SAVEPOINT silent",
                "INSERT INTO noted.wanted VALUES (2)",
                "INSERT INTO noted.other VALUES (99)",
                "COMMIT",
            )
            texts, begins = told(connector, 2)
    assert texts == [f"INSERT INTO noted.wanted VALUES ({number})" for number in (1, 2)]
    assert begins <= 4  # one of what is empty for it may come
