"""What an operator does to subscribers of a real destination over binlog files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ray_canal.config import CanalConfig, InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination import operations
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.errors import (
    ConfigError,
    ConnectionLost,
    InstanceRestarted,
    MetaUnavailable,
    NotSubscribed,
    PositionNotFound,
)
from ray_canal.meta.operations import operate_kept
from ray_canal.model.message import EMPTY_BATCH, MessageHead
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.subscription import Subscription
from ray_canal.source.start.lookup import locate, log_of
from tests.local_destination import (
    ALL,
    NAME,
    OtherServers,
    SlowOpening,
    drain,
    follow_each_other,
    instance,
    lose_source,
    meta_away,
    new_destination,
    run,
    running,
    take,
    until,
)

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}
LARGE_LOG = {"buffer_size": 16384, "memunit_bytes": 1024}


def one_file(**store: int) -> InstanceConfig:
    return instance(binlog_files()[:1], store=store or LARGE_LOG)


def transactions_of(config: InstanceConfig) -> list[EntryPosition]:
    """Where transactions of its log begin."""
    from tests.unit.source.start.test_search import all_transactions

    with log_of(config) as log:
        return [place for place, *_ in all_transactions(log)]  # type: ignore[arg-type]


def starts_at(head: MessageHead | None, place: EntryPosition) -> bool:
    return head is not None and head.start is not None and (
        head.start.journal_name == place.journal_name
        and 0 <= head.start.position - place.position < 100
    )  # fmt: skip


def test_seek_back_and_forth_in_the_log(tmp_path: Path) -> None:
    """The next batch begins where the operator said; what was handed out is void."""
    config = one_file()
    places = transactions_of(config)
    early, late = places[3], places[-4]

    async def story() -> None:
        async with running(tmp_path, config) as store:
            await store.subscribe(1, ALL)  # who acks nothing: the log keeps all
            await store.subscribe(7, ALL)
            first = await take(store, 7, ack=False)
            assert first is not None
            await store.ack(7, first.id, first.epoch, mark="as far as this")
            assert len(await drain(store, 7)) > 3
            assert [one["mark"] for one in await store.subscribers()] == [None, "as far as this"]
            shown = await store.operate(7, "seek", str(early))
            assert shown is not None
            assert (shown["cursor"], shown["mark"]) == (str(early), None)
            out = await take(store, 7, ack=False)
            assert starts_at(out, early)
            assert out is not None
            await store.operate(7, "seek", str(late))
            with pytest.raises(InstanceRestarted):
                await store.ack(7, out.id, out.epoch)
            again = await take(store, 7)
            assert starts_at(again, late)
            assert again is not None
            assert again.id > out.id
            await store.operate(7, "seek", "tail")
            assert await take(store, 7) is None
            await store.operate(7, "seek", "head")
            heads = await drain(store, 7)
            assert follow_each_other(heads)
            assert len(heads) > 3
        async with running(tmp_path, config) as store:  # it was durable
            await store.subscribe(7, ALL)
            assert await take(store, 7) is None

    run(story())


def test_a_seek_that_cannot_be_leaves_everything(tmp_path: Path) -> None:
    """Refused with its reason; nothing that was handed out is void, the cursor stays."""

    async def story() -> None:
        async with running(tmp_path, one_file()) as store:
            await store.subscribe(7, ALL)
            out = await take(store, 7, ack=False)
            assert out is not None
            with pytest.raises(PositionNotFound):
                await store.operate(7, "seek", "other-bin.000001:4")
            with pytest.raises(ConfigError, match="no place in a log"):
                await store.operate(7, "seek", "yesterday")
            for text in ("2026-11-25", "0-1-5"):  # of MariaDB
                with pytest.raises(ConfigError, match=f"'{text}' is no set of GTIDs .*a time is"):
                    await store.operate(7, "seek", text)
            name = binlog_files()[0].name
            with pytest.raises(PositionNotFound, match=f"no event begins at offset 5 of {name}"):
                await store.operate(7, "seek", f"{name}:5")
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await store.operate(7, "seek", "head")
            with pytest.raises(NotSubscribed, match="no subscriber 8; `ray-canal subscribers x`"):
                await store.operate(8, "seek", "tail")
            await store.ack(7, out.id, out.epoch)
            out = await take(store, 7, ack=False)
            assert out is not None
            await store.operate(7, "seek", "head")
            with pytest.raises(InstanceRestarted, match="its subscriber was moved"):
                await store.ack(7, out.id, out.epoch)

    run(story())


def test_seek_to_what_the_log_has_let_go_is_a_catch_up(tmp_path: Path) -> None:
    """A place before the log's beginning is read by a stream of its own, and nothing is missing."""
    config = one_file(**SMALL_LOG)
    places = transactions_of(config)

    async def story() -> None:
        async with running(tmp_path, config) as store:
            await store.subscribe(7, ALL)
            everything = await drain(store, 7)
            shown = await store.operate(7, "seek", str(places[2]))
            assert shown is not None
            assert shown["detached"]
            heads = await drain(store, 7)
            assert starts_at(heads[0], places[2])
            assert follow_each_other(heads)
            assert heads[-1].end == everything[-1].end
            assert heads[0].id > everything[-1].id
            ids = []
            for seeks in (1, 2):  # moved again before it asked: no two batches have one id
                for _ in range(seeks):
                    await store.operate(7, "seek", str(places[2]))
                again = await take(store, 7)
                assert starts_at(again, places[2])
                assert again is not None
                ids.append(again.id)
            assert heads[-1].id < ids[0] < ids[1]

    run(story())


def test_paused_it_gets_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    """A get waits as long as it may; the log goes on; resumed, nothing is missing."""
    config = one_file(**SMALL_LOG)

    async def story() -> None:
        async with running(tmp_path, config) as store:
            await store.subscribe(7, ALL, wishes=Subscription(policy="block"))
            await store.subscribe(8, ALL)
            first = await take(store, 7)
            assert first is not None
            out = await take(store, 7, ack=False)
            assert out is not None
            shown = await store.operate(7, "pause")
            assert shown is not None
            assert shown["paused_at"]
            assert await take(store, 7) is None
            assert not (await store.get_without_ack(7, 4, None)).finished
            others = await drain(store, 8)  # the whole file, many times the log
            assert len(others) > 20
            waiting = asyncio.create_task(store.get_without_ack(7, 1, 60))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await store.operate(7, "resume")
            second = await waiting
            assert second.id != EMPTY_BATCH
            await store.rollback(7, None, None)
            heads = await drain(store, 7)
            assert follow_each_other([first, *heads])
            assert heads[-1].end == others[-1].end

    run(story())


def test_a_pause_lasts_over_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, one_file()) as store:
            await store.subscribe(7, ALL)
            await store.operate(7, "pause")
            await store.operate(7, "label", "the warehouse")
        async with running(tmp_path, one_file()) as store:
            await store.subscribe(7, ALL)
            assert await take(store, 7) is None
            (record,) = await store.subscribers()
            assert (record["label"], record["paused_at"] > 0) == ("the warehouse", True)
            resumed = await store.operate(7, "resume")
            assert resumed is not None
            assert resumed["paused_at"] is None
            assert await take(store, 7) is not None

    run(story())


def test_copy_rename_expire_and_remove(tmp_path: Path) -> None:
    """Each copy reads alone from the same place on; an id that is taken is refused."""

    async def story() -> None:
        async with running(tmp_path, one_file()) as store:
            await store.subscribe(7, "shop.*" + ",.*\\..*", wishes=Subscription(policy="spill"))
            first = await take(store, 7)
            assert first is not None
            copy = await store.operate(7, "copy", 9)
            assert copy is not None
            assert (copy["client_id"], copy["policy"]) == (9, "spill")
            with pytest.raises(ConfigError, match="is a subscriber already"):
                await store.operate(7, "rename", 9)
            for action in ("copy", "rename"):
                with pytest.raises(ConfigError, match=f"7 has this id already; give {action}"):
                    await store.operate(7, action, 7)
            await store.operate(9, "label", "nightly")
            labels = [await store.operate(9, "copy", 10), await store.operate(9, "rename", 11)]
            assert [each["label"] for each in labels if each] == ["", "nightly"]
            assert copy["called_at"] is None  # nobody has
            await store.operate(10, "remove")
            await store.operate(11, "rename", 9)
            mine, its = await take(store, 7), await take(store, 9)
            assert mine is not None
            assert its is not None
            assert mine.start == its.start
            renamed = await store.operate(7, "rename", 8)
            assert renamed is not None
            assert renamed["called_at"]
            with pytest.raises(NotSubscribed):
                await store.get_without_ack(7, 1, 0.1)
            after = await take(store, 8)
            assert after is not None
            assert follow_each_other([first, mine, after])
            expired = await store.operate(9, "expire")
            assert expired is not None
            assert expired["expired_at"]
            assert expired["detached"]
            back = await take(store, 9, seconds=30)  # it catches up by itself
            assert back is not None
            assert follow_each_other([its, back])
            assert await store.operate(9, "remove") is None
            assert [one["client_id"] for one in await store.subscribers()] == [8]

    run(story())


def test_while_the_destination_has_failed_its_cursor_can_be_moved(tmp_path: Path) -> None:
    """A cursor whose file is gone keeps the destination from its start, until it is moved."""
    whole = instance(binlog_files(), store=LARGE_LOG)
    later = instance(binlog_files()[1:], store=LARGE_LOG)

    async def story() -> None:
        async with running(tmp_path, whole) as store:
            await store.subscribe(7, ALL)
            assert await take(store, 7, seconds=30)
        store = new_destination(tmp_path, later)
        try:
            await until(lambda: store.state.supervisor.state == "failed")
            shown = await store.operate(7, "show")
            assert shown is not None
            assert shown["cursor"]
            with pytest.raises(ConfigError, match="there is no head"):
                await store.operate(7, "seek", "head")
            await store.operate(7, "seek", "earliest")
            await store.wait_running(60)
            await store.subscribe(7, ALL)
            head = await take(store, 7, seconds=30)
            assert head is not None
            assert head.start is not None
            assert head.start.journal_name == binlog_files()[1].name
            assert head.start.position < 1000
        finally:
            await store.stop()

    run(story())


@pytest.mark.parametrize("before", [(), (7,)])
def test_who_is_moved_while_old_cursors_are_tried_is_served(
    before: tuple[int, ...], tmp_path: Path
) -> None:
    """What becomes of the cursors that were loaded is not told of those that replaced them."""
    later = instance(binlog_files()[1:], store=LARGE_LOG)

    async def story() -> None:
        async with running(tmp_path, instance(binlog_files(), store=LARGE_LOG)) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
                assert await take(store, client_id, seconds=30)
        store = new_destination(tmp_path, later)
        try:
            await until(lambda: store.state.supervisor.state == "failed")
            with SlowOpening() as opening:
                for client_id in before:
                    await store.operate(client_id, "seek", "earliest")
                store.state.supervisor.retry_now()
                await opening.began.wait()
                for client_id in {7, 8} - {*before}:
                    await store.operate(client_id, "seek", "earliest")
                opening.go.set()
                for client_id in (7, 8):
                    head = await take(store, client_id, seconds=30)
                    assert head is not None
                    assert head.start is not None
                    assert head.start.journal_name == binlog_files()[1].name
        finally:
            await store.stop()

    run(story())


def test_while_it_is_down(tmp_path: Path) -> None:
    """The records are changed where they are kept, and the next start goes by them."""
    config = one_file()
    places = transactions_of(config)
    tree = {"instance": [config.model_dump()], "meta": {"path": str(tmp_path / "meta.db")}}
    canal = CanalConfig.model_validate(tree)

    async def before() -> None:
        async with running(tmp_path, config) as store:
            await store.subscribe(7, ALL)
            await take(store, 7)

    run(before())
    assert operate_kept(canal, NAME, 7, "pause")["paused_at"]
    assert operate_kept(canal, NAME, 7, "resume")["paused_at"] is None
    assert operate_kept(canal, NAME, 7, "label", "x")["label"] == "x"
    assert operate_kept(canal, NAME, 7, "seek", str(places[5]))["cursor"] == str(places[5])
    assert operate_kept(canal, NAME, 7, "copy", 8)["client_id"] == 8
    assert operate_kept(canal, NAME, 8, "rename", 9)["client_id"] == 9
    with pytest.raises(ConfigError, match="7 has this id already"):
        operate_kept(canal, NAME, 7, "rename", 7)
    assert operate_kept(canal, NAME, 9, "expire")["expired_at"]
    operate_kept(canal, NAME, 9, "remove")
    with pytest.raises(ConfigError, match="has no head"):
        operate_kept(canal, NAME, 7, "seek", "head")
    with pytest.raises(NotSubscribed):
        operate_kept(canal, NAME, 9, "show")
    with log_of(config) as log:
        end = locate(config.source, log, "latest").place
    assert operate_kept(canal, NAME, 7, "seek", "tail")["cursor"] == str(end)
    operate_kept(canal, NAME, 7, "seek", places[5].gtid)

    async def after() -> None:
        async with running(tmp_path, config) as store:
            await store.subscribe(7, ALL)
            assert starts_at(await take(store, 7), places[5])

    run(after())


@pytest.mark.parametrize(
    ("action", "argument", "told"),
    [("jump", None, "there are show"), ("seek", None, "seek where"), ("copy", "9", "new client id"),
     ("rename", -1, "ids begin at 0"), ("copy", 1 << 30, "ephemeral"), ("label", None, "a text"),
     ("label", "a\nb", "one line")],
)  # fmt: skip
def test_what_is_no_operation_is_told(action: str, argument: str | int | None, told: str) -> None:
    from ray_canal.meta.operations import refuse_action

    with pytest.raises(ConfigError, match=told):
        refuse_action(action, argument)


def test_a_seek_that_ends_after_a_failover_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place of one server's log means another one in the next server's."""
    config = one_file()
    place = transactions_of(config)[3]

    async def story() -> None:
        with OtherServers() as servers:
            monkeypatch.setattr(
                operations, "sought", lambda config, text: LogPosition(servers.now, place)
            )
            async with running(tmp_path, config) as store:
                await store.subscribe(1, ALL)
                await store.subscribe(7, ALL)
                for to in (str(place), "head"):
                    before = (await store.operate(7, "show") or {})["cursor"]
                    turn = store.state.subscribers.turn(7)
                    async with turn:
                        seeking = asyncio.create_task(store.operate(7, "seek", to))
                        await until(lambda turn=turn: turn._waiters)
                        await servers.fail_over(store)
                    with pytest.raises(ConnectionLost, match="try again"):
                        await seeking
                    assert (await store.operate(7, "show") or {})["cursor"] == before

    run(story())


def test_a_seek_in_the_log_of_a_server_that_refuses_the_cursors_ends_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a server that is dead went on, and its identity refused all others' places."""
    config = one_file()
    place = transactions_of(config)[3]

    async def story() -> None:
        with OtherServers() as servers:
            monkeypatch.setattr(
                operations, "sought", lambda config, text: LogPosition(servers.now, place)
            )
            async with running(tmp_path, config) as store:
                await store.subscribe(7, ALL)
                opened, state = LogPipeline.open, store.state

                async def refused(*_: object) -> None:
                    LogPipeline.open = opened  # type: ignore[method-assign]
                    raise PositionNotFound("it is not there")

                LogPipeline.open = refused  # type: ignore[assignment, method-assign]
                servers.now = SourceIdentity("db:3306", "uuid-2")
                lose_source(store)
                await until(lambda: isinstance(state.supervisor.failure, PositionNotFound))
                await store.operate(7, "seek", str(place))
                assert starts_at(await take(store, 7, seconds=30), place)
                assert state.log.identity == servers.now

    run(story())
