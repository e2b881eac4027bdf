"""Batches that are handed out, acked and given back, of a real destination."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ray_canal.demo import binlog_files
from ray_canal.destination.supervisor import FINISHED
from ray_canal.errors import (
    BatchNotFirst,
    BatchNotFound,
    InstanceRestarted,
    MetaUnavailable,
    NotSubscribed,
)
from ray_canal.model.message import EMPTY_BATCH, Caller
from ray_canal.model.subscription import TCP_HOLDER
from tests.local_destination import (
    ALL,
    drain,
    follow_each_other,
    instance,
    meta_away,
    run,
    running,
    saves_that_wait,
    take,
    until,
)


def test_a_get_whose_ack_cannot_be_saved_comes_again(tmp_path: Path) -> None:
    """A4, A5: get acks what has arrived; where that fails, the next get brings it again."""

    async def story() -> None:
        async with running(tmp_path) as store:
            await store.subscribe(7, ALL)
            first = await store.get(7, 4, 5.0, "", Caller("it", 1))
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await store.ack(7, first.id, first.epoch, keep=True)
            again = await store.get(7, 4, 5.0, "", Caller("it", 2))
            assert (again.start, again.end) == (first.start, first.end)
            assert await store.list_batch_ids(7) == [again.id]
            await store.ack(7, again.id, again.epoch, keep=True)
            assert await store.list_batch_ids(7) == []

    run(story())


def test_a_connection_that_takes_over_gets_what_was_out(tmp_path: Path) -> None:
    """C4: Canal's clients subscribe without a rollback; batches of another kind of client go
    back."""

    async def story() -> None:
        async with running(tmp_path) as store:
            await store.subscribe(7, ALL, holder="a connector")
            out = await take(store, 7, ack=False, holder="a connector")
            await store.subscribe(7, ALL, rollback=False, holder=TCP_HOLDER + "1")
            again = await take(store, 7, ack=False, holder=TCP_HOLDER + "1")
            assert out is not None
            assert again is not None
            assert again.start == out.start
            await store.subscribe(7, ALL, rollback=False, holder=TCP_HOLDER + "2")
            assert await store.list_batch_ids(7, TCP_HOLDER + "2") == [again.id]

    run(story())


@pytest.mark.parametrize("how", ["rollback", "subscribe"])
def test_a_new_connection_ends_the_get_of_one_that_may_be_gone(tmp_path: Path, how: str) -> None:
    """D7: also where they came to two servers, which know nothing of each other."""

    async def story() -> None:
        config = instance(source={"files": [str(binlog_files()[0])], "follow": True})
        async with running(tmp_path, config) as store:
            old, new = TCP_HOLDER + "at one server", TCP_HOLDER + "at another"
            await store.subscribe(7, ALL, rollback=False, holder=old)
            waiting = asyncio.create_task(store.get_without_ack(7, 1 << 30, 30.0, old))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            if how == "rollback":  # as it begins, before it has subscribed
                await store.rollback(7, None, None, TCP_HOLDER)
            else:
                await store.subscribe(7, ALL, rollback=False, holder=new)
            done, _ = await asyncio.wait({waiting}, timeout=20)
            assert done
            assert waiting.result().id == EMPTY_BATCH
            assert await store.list_batch_ids(7, new) == []
            found = await take(store, 7, 4, holder=new)  # and its ack is the first
            assert found is not None

    run(story())


def test_a_poll_acks_what_the_caller_is_done_with_and_may_come_twice(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
            first = await destination.poll(7, 1, 5.0)
            done = first.id, first.epoch
            second = await destination.poll(7, 1, 5.0, done)
            assert await destination.list_batch_ids(7) == [second.id]
            third = await destination.poll(7, 1, 5.0, done)  # its answer was lost, say
            assert await destination.list_batch_ids(7) == [second.id, third.id]
            assert follow_each_other([first, second, third])

    run(story())


def test_a_poll_is_answered_while_its_ack_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one waits for it: at most two messages come again after a crash."""
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
            first = await destination.poll(7, 1, 5.0)
            disk = saves_that_wait(monkeypatch)
            second = await destination.poll(7, 1, 5.0, (first.id, first.epoch))
            assert second.id == first.id + 1
            third = asyncio.create_task(
                destination.poll(7, 1, 5.0, (second.id, second.epoch))
            )
            told = asyncio.create_task(destination.list_batch_ids(7))
            await asyncio.sleep(0.1)
            assert not third.done()
            assert not told.done()
            disk.set()
            assert (await third).id == second.id + 1
            await told
            assert await destination.list_batch_ids(7) == [second.id + 1]

    run(story())


def test_an_ack_that_failed_behind_its_poll_is_made_by_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
            taken = [await destination.poll(7, 1, 5.0)]

            async def two_polls() -> None:
                for _ in range(2):
                    done = (taken[-1].id, taken[-1].epoch)
                    taken.append(await destination.poll(7, 1, 5.0, done))

            # The first one fails if its ack did before its answer, else the second one does.
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await two_polls()
            done = (taken[-1].id, taken[-1].epoch)
            third = await destination.poll(7, 1, 5.0, done)
            assert await destination.list_batch_ids(7) == [third.id]
            cursor = (await destination.state.records.cursors.load())[7].cursor
            assert cursor is not None
            assert cursor.position == taken[-1].ack
            assert follow_each_other([*taken, third])

    run(story())


def test_what_is_given_back_is_not_acked_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
            first = await destination.poll(7, 1, 5.0)

            async def a_poll_and_a_call() -> None:
                await destination.poll(7, 1, 5.0, (first.id, first.epoch))
                await destination.list_batch_ids(7)

            # The poll fails if its ack did before its answer, else the call after it does.
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await a_poll_and_a_call()
            await destination.rollback(7, None, None)
            again = await destination.poll(7, 1, 5.0)
            assert again.start == first.start  # with it may come what is there since
            assert await destination.list_batch_ids(7) == [again.id]

    run(story())


def test_acks_are_in_order_and_durable(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
            first, second = [await destination.get_without_ack(7, 1, 5.0) for _ in range(2)]
            with pytest.raises(BatchNotFirst):
                await destination.ack(7, second.id, second.epoch)
            with pytest.raises(BatchNotFound):
                await destination.ack(7, second.id + 1, second.epoch)
            with pytest.raises(InstanceRestarted):
                await destination.ack(7, first.id, first.epoch - 1)
            await destination.ack(7, first.id, first.epoch)
            cursor = (await destination.state.records.cursors.load())[7].cursor
            assert cursor is not None
            assert cursor.position == first.ack
            await destination.rollback(7, second.id, second.epoch)
            again = await destination.get_without_ack(7, 1, 5.0)
            assert (again.start, again.end) == (second.start, second.end)

    run(story())


def test_what_a_caller_did_not_receive_comes_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
            first = await destination.get_without_ack(7, 1, 5.0, "", Caller("me", 1))
            got = Caller("me", 2, first.epoch, first.id)
            lost = await destination.get_without_ack(7, 1, 5.0, "", got)
            again = await destination.get_without_ack(
                7, 1, 5.0, "", Caller("me", 3, first.epoch, first.id)
            )
            assert (again.start, again.end) == (lost.start, lost.end)
            assert await destination.list_batch_ids(7) == [first.id, again.id]

    run(story())


def test_the_source_s_end_is_told_when_all_was_delivered(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, instance(binlog_files()[:1])) as destination:
            await destination.subscribe(7, ALL)
            assert await drain(destination, 7, 1000)
            await until(lambda: destination.state.supervisor.state == FINISHED)
            last = await destination.get_without_ack(7, 1, 0)
            assert (last.id, last.finished) == (EMPTY_BATCH, True)

    run(story())


def test_client_ids_that_are_gone_or_never_were_are_forgotten(tmp_path: Path) -> None:
    """Each ephemeral subscription has an id of its own, and whoever may get may give any."""

    async def story() -> None:
        async with running(tmp_path) as store:
            await store.subscribe(7, ALL)
            first = await store.get(7, 4, 5.0, "", Caller("it", 1))
            for client_id in range(100, 300):
                with pytest.raises(NotSubscribed):
                    await store.get(client_id, 4, None, "", Caller("other", 1))
                with pytest.raises(NotSubscribed):
                    await store.poll(client_id, 4, 0.0, (1, 1))
            delivery = store.api._delivery
            assert len(delivery._handed_out) < 100
            await until(lambda: not delivery._loop_acks._tasks)
            assert not delivery._loop_acks._owed
            assert await store.list_batch_ids(7) == [first.id]
            again = await store.get(7, 4, 5.0, "", Caller("it", 2))  # the first was lost
            assert (again.start, again.end) == (first.start, first.end)

    run(story())
