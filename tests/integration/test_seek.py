"""An operator moves subscribers of live servers: by offset, GTID set and time; into the log, and to
what the log has let go."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import uuid
from pathlib import Path

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.errors import InstanceRestarted, PositionNotFound, TransactionsMissing
from ray_canal.model.message import MessageHead
from ray_canal.model.position import EntryPosition
from ray_canal.model.subscription import Subscription
from ray_canal.source.start.log_file import transactions
from ray_canal.source.start.lookup import log_of
from ray_canal.source.start.search import Search
from tests.local_destination import (
    ALL,
    LocalDestination,
    drain,
    follow_each_other,
    run,
    running,
    take,
)
from tests.servers import Server

pytestmark = pytest.mark.parametrize("server", ["mysql97", "mariadb"], indirect=True)


def config_of(server: Server) -> InstanceConfig:
    """A log that keeps little, from where the server is now."""
    name, position = server.position()
    source = {
        "address": server.address, "username": "root", "start": "position",
        "journal_name": name, "position": position,
    }  # fmt: skip
    store = {"buffer_size": 64, "memunit_bytes": 1024}
    return InstanceConfig.model_validate(
        {"destination": "x", "source": source, "chunk_bytes": 4096, "decoders": 0, "store": store}
    )


def written(server: Server, count: int) -> None:
    for number in range(count):
        server.execute(f"INSERT INTO sought.t VALUES ({number}, REPEAT('x', 3000))")


def transactions_in(config: InstanceConfig, since: EntryPosition) -> list[EntryPosition]:
    """Where transactions of the last file begin, with the GTIDs before each."""
    with log_of(config) as log:
        name = log.files()[-1][0]
        search = Search(log)
        places = [int(at) for some in transactions(log, name) for at in some.position]
        return [search.boundary(name, at) for at in places if at >= since.position]


def begins_at(head: MessageHead | None, place: EntryPosition) -> bool:
    """Whether a batch begins with the transaction of a place, whose rows are 3,000 bytes."""
    return (
        head is not None
        and head.start is not None
        and head.start.journal_name == place.journal_name
        and 0 <= head.start.position - place.position < 2000
    )


async def refuse_what_never_was(store: LocalDestination, gtids: str) -> None:
    """Neither seek nor a first subscription begins after foreign GTIDs, or in the future."""
    foreign = f"{gtids},{uuid.uuid4()}:1-5" if ":" in gtids else f"{gtids},77-77-1"
    tomorrow = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=1)
    for place, kind, why in (
        (foreign, TransactionsMissing, "never had .*; it has .*"),
        (tomorrow, PositionNotFound, "in the future for .*: its clock says 2.*, and the newest"),
    ):
        before = (await store.operate(7, "show") or {})["cursor"]
        with pytest.raises(kind, match=why):
            await store.operate(7, "seek", place if isinstance(place, str) else place.isoformat())
        assert (await store.operate(7, "show") or {})["cursor"] == before
        with pytest.raises(kind, match=why):
            await store.subscribe(8, ALL, wishes=Subscription(start=place))
    assert [one["client_id"] for one in await store.subscribers()] == [7]


def test_by_offset_gtids_and_time(server: Server, tmp_path: Path) -> None:
    with contextlib.suppress(Exception):
        server.execute("DROP DATABASE sought")
    server.execute("CREATE DATABASE sought", "CREATE TABLE sought.t (id INT, v TEXT)")
    server.execute("FLUSH BINARY LOGS")
    config = config_of(server)
    since = EntryPosition(config.source.journal_name, config.source.position)

    async def story() -> None:
        async with running(tmp_path, config) as store:
            await store.subscribe(7, ALL)
            written(server, 12)
            time.sleep(1.1)  # MariaDB writes whole seconds
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            written(server, 12)
            heads = await drain(store, 7, 4)
            assert follow_each_other(heads)
            places = transactions_in(config, since)
            assert len(places) == 24
            for text, place in (
                (str(places[3]), places[3]),
                (places[5].gtid, places[5]),
                (moment, places[12]),
                (f"{places[7].journal_name}:{places[7].position + 1}", places[7]),
            ):
                shown = await store.operate(7, "seek", text)
                assert shown is not None
                assert shown["cursor"] == str(place), text
                head = await take(store, 7, 1, ack=False, seconds=60)
                assert begins_at(head, place), text
            assert head is not None
            with pytest.raises(PositionNotFound):
                await store.operate(7, "seek", "nothing.000001:4")
            await refuse_what_never_was(store, places[5].gtid)
            await store.operate(7, "seek", "latest")
            with pytest.raises(InstanceRestarted):
                await store.ack(7, head.id, head.epoch)
            assert await take(store, 7, 1) is None
            written(server, 1)
            newest = await take(store, 7, 1, seconds=60)
            assert begins_at(newest, transactions_in(config, since)[-1])

    run(story(), 150.0)
    server.execute("DROP DATABASE sought")
