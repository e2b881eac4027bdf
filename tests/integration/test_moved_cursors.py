"""A cursor that moves to another server with the same transactions in another form or order; and a
server that is not the one that was asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ray_canal.destination.parsing import event_parser
from ray_canal.errors import ServerSettingRefused, SourceError
from ray_canal.log.log_order import LogOrder
from ray_canal.log.subscriber import consumed
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.source.live import LiveSource
from tests.dumps import instance, read_until
from tests.integration.test_log_identity import reading, serving, write
from tests.proxy import Proxy
from tests.servers import Server

ROWS = 120
OTHER = str(uuid.UUID(int=77))


def log_chunks(source: LiveSource, server: Server, start: EntryPosition) -> Iterator[LogChunk]:
    """The server's log from there to its present end, as a destination's log has it."""
    parser = event_parser(instance(server, chunk_bytes=4096))
    parser.begin((), server.address, start)
    buffer = TransactionBuffer(start, start.gtid)
    for raw in read_until(source, *server.position()):
        yield buffer.add(parser.decode_chunk(raw)[0])


def rows_left(server: Server, cursor: LogPosition) -> tuple[int, str]:
    """How many rows come after the cursor has moved to this server; how it was placed."""
    with reading(server) as source:
        start = source.resume([cursor])
        order = LogOrder(start.position)
        found = 0
        for chunk in log_chunks(source, server, start.position):
            left = ~consumed(chunk, start.cursors[0], order)
            found += int(chunk.info.entries["rows"][left].sum())
        return found, start.how


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_the_same_transaction_in_other_events(kind: str, tmp_path: Path) -> None:
    """A9: the old server logs statements, too, and cuts events small; the new one does neither.
    Wherever the transaction was acked in part, the rest of its rows comes; where both servers cut
    alike, no row comes twice."""
    small = {"binlog_row_event_max_size": "256"}
    if kind == "mariadb":
        small["binlog_annotate_row_events"] = "ON"
    else:
        small["binlog_rows_query_log_events"] = "ON"
    plain = {"binlog_annotate_row_events": "OFF"} if kind == "mariadb" else {}
    other = {**plain, "server_id": "2"}
    with (
        serving(kind, tmp_path / "old", **small) as old,
        serving(kind, tmp_path / "alike", **small, server_id="3") as alike,
        serving(kind, tmp_path / "new", **other) as new,
    ):
        values = ", ".join(f"({n}, {n})" for n in range(ROWS))
        insert_all, update_all = f"INSERT INTO l.t VALUES {values}", "UPDATE l.t SET v = -1"
        statements = [*written_at(kind, ROWS), "BEGIN", insert_all, update_all, "COMMIT"]
        with reading(old) as source:
            start = source.resume(()).position
            identity = source.identity
            run(old, statements)
            chunks = list(log_chunks(source, old, start))
        gtid = transaction_of(chunks)
        for server in (alike, new):
            known = catch_up(server, chunks[0].gtid_set)
            run(server, [*known, *named(kind, gtid), *statements])
        tried = twice = 0
        for chunk in chunks:
            for entry in range(0, len(chunk.info.entries), 2):
                place = chunk.resume_after(entry)
                if not place.is_inside:
                    continue
                cursor = LogPosition(identity, place)
                left, how = rows_left(alike, cursor)
                assert place.row + left == 2 * ROWS, how
                left, how = rows_left(new, cursor)
                assert place.row + left >= 2 * ROWS, how
                tried, twice = tried + 1, max(twice, place.row + left - 2 * ROWS)
        assert tried > 5
        assert twice > 0  # the new server's events are larger


def transaction_of(chunks: list[LogChunk]) -> str:
    found = {chunk.resume_after(0).open_gtid for chunk in chunks} - {""}
    (gtid,) = found
    return gtid


def named(kind: str, gtid: str) -> list[str]:
    """The next transaction has this GTID."""
    if kind != "mariadb":
        return [f"SET GTID_NEXT = '{gtid}'"]
    domain, server_id, sequence = gtid.split("-")
    return [
        f"SET SESSION server_id = {server_id}",
        f"SET SESSION gtid_domain_id = {domain}",
        f"SET SESSION gtid_seq_no = {sequence}",
    ]


def catch_up(server: Server, gtids: str) -> list[str]:
    """What the old server executed before counts as executed here, too, and nothing else."""
    if server.kind == "mariadb":
        return ["RESET MASTER", f"SET GLOBAL gtid_binlog_state = '{gtids}'"]
    reset = "RESET BINARY LOGS AND GTIDS" if server.kind == "mysql97" else "RESET MASTER"
    return [reset, f"SET GLOBAL gtid_purged = '{gtids}'"]


def run(server: Server, statements: list[str]) -> None:
    server.execute(*statements)


def insert(number: int) -> str:
    return f"INSERT INTO l.t VALUES ({number}, 1)"


def committed(server: Server, number: int) -> list[str]:
    """An insert that was written at the same moment wherever it is, as replicas keep it."""
    return [*written_at(server.kind, number), insert(number)]


def written_at(kind: str, number: int) -> list[str]:
    """The next transaction was committed at this moment where it was written."""
    at_s = 1_790_000_000 - number
    if kind != "mysql97":
        return [f"SET SESSION timestamp = {at_s}"]  # of its rows: replicas keep no commit time
    return [f"SET SESSION original_commit_timestamp = {at_s * 1_000_000}"]


MODES = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


def change_gtid_mode(server: Server, *modes: int) -> None:
    """One step after the other, as MySQL wants it."""
    server.execute(*(f"SET GLOBAL gtid_mode = {MODES[mode]}" for mode in modes))


def test_what_was_written_without_gtids_is_not_passed_over(tmp_path: Path) -> None:
    """All GTIDs of the server are in the cursor's set, so that by them it would begin at the end:
    the transactions that it had while gtid_mode was off come behind the cursor, too."""
    with serving("mysql97", tmp_path) as server:
        with reading(server) as source:
            start = source.resume(()).position
            write(server, 0, 3)
            whole = list(log_chunks(source, server, start))[-1].after
        change_gtid_mode(server, 2, 1)
        with reading(server) as source:
            start = source.resume(()).position
            run(server, ["BEGIN", insert(10), insert(11), "COMMIT"])
            inside = list(log_chunks(source, server, start))[-1].resume_after(1)
        change_gtid_mode(server, 0)
        write(server, 20, 3, files=1)
        change_gtid_mode(server, 1, 2)
        write(server, 30, 4)
        identity = SourceIdentity("elsewhere:3306", OTHER)
        assert inside.is_inside
        inside = replace(inside, gtid=whole.gtid)
        for place, wanted in ((whole, 9), (inside, 8)):
            left, how = rows_left(server, LogPosition(identity, place))
            assert left == wanted, how
        change_gtid_mode(server, 3)
        with pytest.raises(ServerSettingRefused, match="set gtid_mode = ON_PERMISSIVE"):
            rows_left(server, LogPosition(identity, whole))


def test_domains_in_another_order(tmp_path: Path) -> None:
    """A12: what a subscriber has had of one domain does not come again behind what it has not had
    of another one."""
    with (
        serving("mariadb", tmp_path / "old") as old,
        serving("mariadb", tmp_path / "new", server_id="2") as new,
    ):
        run(new, catch_up(new, "0-1-2"))
        with reading(old) as source:
            start = source.resume(())
            place, identity = start.position, source.identity
        for number in range(3):
            run(old, [*named("mariadb", f"7-1-{number + 1}"), *committed(old, 10 + number)])
        run(old, [*named("mariadb", "0-1-3"), *committed(old, 1)])
        with reading(old) as source:
            source.open(place)
            cursor = list(log_chunks(source, old, place))[-1].after
        assert cursor is not None
        assert cursor.gtid == "0-1-3,7-1-3"
        for gtid, number in (("0-1-3", 1), ("0-1-4", 2), ("7-1-1", 10), ("7-1-2", 11),
                             ("7-1-3", 12), ("7-1-4", 13), ("0-1-5", 3)):  # fmt: skip
            run(new, [*named("mariadb", gtid), *committed(new, number)])
        left, how = rows_left(new, LogPosition(identity, cursor))
        assert left == 3, how


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_sources_in_another_order(kind: str, tmp_path: Path) -> None:
    """A12: the same of MySQL's sources; and one subscriber's set leaves nothing out that another
    one lacks."""
    with (
        serving(kind, tmp_path / "old") as old,
        serving(kind, tmp_path / "new", server_id="2") as new,
    ):
        with reading(old) as source:
            start = source.resume(()).position
            identity = source.identity
            for number in range(1, 4):
                run(old, [f"SET GTID_NEXT = '{OTHER}:{number}'", *committed(old, 10 + number)])
            run(old, committed(old, 1))
            chunks = list(log_chunks(source, old, start))
        full = chunks[-1].after
        assert full is not None
        own = full.gtid.replace(f"{OTHER}:1-3", "").strip(",").split(":")[0]
        number = int(full.gtid.split(f"{own}:")[1].split(",")[0].split("-")[-1])
        run(new, catch_up(new, start.gtid))
        for gtid, row in ((f"{own}:{number}", 1), (f"{own}:{number + 1}", 2), (f"{OTHER}:1", 11),
                          (f"{OTHER}:2", 12), (f"{OTHER}:3", 13), (f"{OTHER}:4", 14)):  # fmt: skip
            run(new, [f"SET GTID_NEXT = '{gtid}'", *committed(new, row)])
        left, how = rows_left(new, LogPosition(identity, full))
        assert left == 2, how
        # Another subscriber, which has had one of OTHER's and not the last of the server's own.
        some = next(c.resume_after(n) for c in chunks for n in range(len(c.info.entries))
                    if c.resume_after(n).gtid.find(f"{OTHER}:1") >= 0)  # fmt: skip
        with reading(new) as source:
            started = source.resume([LogPosition(identity, full), LogPosition(identity, some)])
            rows = sum(
                int(chunk.info.entries["rows"].sum())
                for chunk in log_chunks(source, new, started.position)
            )
        assert rows == 5  # all but OTHER:1


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_an_address_that_leads_to_another_server_at_each_connect(
    kind: str, tmp_path: Path
) -> None:
    """Where reading begins was decided at one server, and the dump's connection leads to another
    one, whose log has such a place, too."""
    with (
        serving(kind, tmp_path / "one", server_id="11") as one,
        serving(kind, tmp_path / "other", server_id="12") as other,
        Proxy((one.host, one.port)) as proxy,
    ):
        write(one, 0, 10)
        write(other, 100, 10)

        def moves(*_: object) -> None:
            proxy.retarget((other.host, other.port))

        with reading(one, address=proxy.address, start="earliest") as source:
            with pytest.raises(SourceError, match="is now another server"):
                source.resume((), decided=moves)
            source.resume(())
            assert read_until(source, *other.position())
