"""One client against a real server on loopback, and a real log of the demo's binlog files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.generated import EntryProtocol_pb2 as entries
from ray_canal.destination.api import DestinationApi, SubscribeRequest
from ray_canal.views.entries import render_entries
from tests.canal_client import RawClient
from tests.served_destination import Decoded, ServedDestination
from tests.unit.server.conftest import run, serving

WIRE = Path(__file__).parents[2] / "golden" / "data" / "wire"


def rendered(chunks: Decoded) -> list[bytes]:
    """What all entries of the files are, by the view that the golden tests hold."""
    found: list[bytes] = []
    for info, chunk in chunks:
        whole = render_entries(chunk, 0, len(info.entries))
        found += [bytes(whole[i]) for i in range(len(whole))]
    return found


def test_a_client_receives_every_entry_once_and_in_order(shop: Decoded) -> None:
    async def test() -> None:
        async with serving({"shop": ServedDestination(shop)}) as server:
            client = await RawClient.logged_in(server.port)
            assert (await client.subscribe("shop")).error_code == 0
            found: list[bytes] = []
            batch_id = 0
            while (message := await client.get("shop", fetch_size=7)).batch_id != -1:
                assert message.batch_id == batch_id + 1
                batch_id = message.batch_id
                found += message.messages
                client.confirm("shop", batch_id)
            assert found == rendered(shop)
            await client.close()

    run(test)


def test_what_was_not_acked_comes_again_on_the_next_connection(shop: Decoded) -> None:
    async def test() -> None:
        async with serving({"shop": ServedDestination(shop)}) as server:
            one = await RawClient.logged_in(server.port)
            await one.subscribe("shop")
            first, second = await one.get("shop", fetch_size=3), await one.get("shop", fetch_size=3)
            one.confirm("shop", first.batch_id)
            assert (await one.get("shop", fetch_size=1)).batch_id == 3
            await one.close()
            other = await RawClient.logged_in(server.port)
            await other.subscribe("shop")
            again = await other.get("shop", fetch_size=3)
            assert again.batch_id == 4
            assert list(again.messages) == list(second.messages)
            await other.close()

    run(test)


def test_a_subscription_without_rollback_keeps_what_is_outstanding(shop: Decoded) -> None:
    async def test() -> None:
        async with serving({"shop": ServedDestination(shop)}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            first = await client.get("shop", fetch_size=2)
            client.send(pb.SUBSCRIPTION, pb.Sub(destination="shop", client_id="1001"))
            await client.ack()
            second = await client.get("shop", fetch_size=2)
            assert second.messages[0] != first.messages[0]
            client.confirm("shop", 1)
            client.confirm("shop", 2)
            client.send(pb.HEARTBEATS)
            assert (await client.ack()).error_code == 0
            await client.close()

    run(test)


def test_filters_and_clients_are_independent(shop: Decoded) -> None:
    async def test() -> None:
        async with serving({"shop": ServedDestination(shop)}) as server:
            client = await RawClient.logged_in(server.port)
            tables = set()
            await client.subscribe("shop", "7", r"SHOP\.Customers")
            await client.subscribe("shop", "8", r"shop\..*")
            message = await client.get("shop", "7", fetch_size=1 << 20)
            for raw in message.messages:
                entry = entries.Entry.FromString(raw)
                if entry.header.tableName:  # CREATE DATABASE has none
                    tables.add(entry.header.tableName)
            assert tables == {"customers"}
            assert len((await client.get("shop", "8", fetch_size=1 << 20)).messages) > len(
                message.messages
            )
            client.send(pb.UNSUBSCRIPTION, pb.Unsub(destination="shop", client_id="7"))
            assert (await client.ack()).error_code == 0
            client.ask("shop", "7")
            assert "should subscribe first" in (await client.ack()).error_message
            await client.close()

    run(test)


@pytest.mark.parametrize(
    ("kind", "body", "code", "text"),
    [
        (pb.GET, pb.Get(destination="shop", client_id="9"), 400, "should subscribe first"),
        (pb.GET, pb.Get(destination="no", client_id="1"), 400, "destination:no should start first"),
        (pb.GET, pb.Get(destination="shop"), 401, "destination or clientId is null"),
        (
            pb.CLIENTACK,
            pb.ClientAck(destination="shop", client_id="1001", batch_id=5),
            400,
            "batchId:5 is not exist , please check",
        ),
        (
            pb.CLIENTACK,
            pb.ClientAck(destination="shop", client_id="1001", batch_id=2),
            400,
            "batchId:2 is not the firstly:1",
        ),
        (pb.CLIENTACK, pb.ClientAck(destination="shop", client_id="1001"), 402, "batchId should"),
        (pb.DUMP, None, 400, "packet type=DUMP is NOT supported!"),
        (
            pb.SUBSCRIPTION,
            pb.Sub(destination="shop", client_id="1", filter="("),
            400,
            "ConfigError",
        ),
    ],
)
def test_errors_have_canals_codes_and_the_connection_stays(
    shop: Decoded, kind: int, body: Any, code: int, text: str
) -> None:
    async def test() -> None:
        async with serving({"shop": ServedDestination(shop)}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            await client.get("shop", fetch_size=1)
            await client.get("shop", fetch_size=1)
            client.send(kind, body)
            answer = await client.ack()
            assert answer.error_code == code
            assert text in answer.error_message
            assert (await client.get("shop", fetch_size=1)).batch_id == 3
            await client.close()

    run(test)


def test_a_get_waits_as_canals_does(shop: Decoded) -> None:
    async def test() -> None:
        store = ServedDestination(shop, released=0)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            clock = asyncio.get_running_loop()
            began = clock.time()
            assert (await client.get("shop", timeout=300, unit=2)).batch_id == -1
            assert 0.25 < clock.time() - began < 5
            client.ask("shop", fetch_size=1, timeout=0)
            await asyncio.sleep(0.1)
            await store.release(1)  # one entry, less than a memory unit: not a full batch
            await asyncio.sleep(0.1)
            assert store.outstanding(1001) == []
            await store.release(5)
            assert (await client.messages()).batch_id == 1
            await client.close()

    run(test)


def test_a_poll_is_answered_as_soon_as_there_is_anything(shop: Decoded) -> None:
    async def test() -> None:
        store = ServedDestination(shop, released=0)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            assert (await client.get("shop", timeout=1, unit=2, poll=True)).batch_id == -1
            client.ask("shop", fetch_size=1000, timeout=0, poll=True)
            await asyncio.sleep(0.1)
            await store.release(1)  # less than a memory unit, of a thousand that were asked for
            assert (await client.messages()).batch_id == 1
            await client.close()

    run(test)


def test_auto_ack_confirms_what_was_sent(shop: Decoded) -> None:
    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            message = await client.get("shop", fetch_size=2, auto_ack=True)
            client.confirm("shop", message.batch_id)  # Canal ignores the flag: such clients ack
            assert (await client.get("shop", fetch_size=2)).batch_id == 2
            assert store.outstanding(1001) == [2]
            await client.close()

    run(test)


def test_who_goes_away_during_a_get_takes_no_batch(shop: Decoded) -> None:
    async def test() -> None:
        store = ServedDestination(shop, released=0)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            client.ask("shop", timeout=0, fetch_size=1)
            while store.takes < 1:
                await asyncio.sleep(0.01)
            assert store.takes == 1
            await client.close()
            while server.status()["connections"]:
                await asyncio.sleep(0.01)
            await store.release(6)
            await asyncio.sleep(0.05)
            assert store.outstanding(1001) == []

    run(test)


def test_a_new_connection_ends_the_old_ones_waiting_get(shop: Decoded) -> None:
    """The old one may be half open: the server does not know that its client is gone."""

    async def test() -> None:
        store = ServedDestination(shop, released=0)
        async with serving({"shop": store}) as server:
            old = await RawClient.logged_in(server.port)
            await old.subscribe("shop")
            old.ask("shop", timeout=0, fetch_size=1)
            await asyncio.sleep(0.1)
            new = await RawClient.logged_in(server.port)
            await new.subscribe("shop")
            assert (await old.messages()).batch_id == -1
            await store.release(6)
            assert (await new.get("shop", fetch_size=1, timeout=0)).batch_id == 1
            await old.close()
            await new.close()

    run(test)


def test_a_takeover_with_nothing_outstanding_is_not_noticed(shop: Decoded) -> None:
    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            first = await client.get("shop", fetch_size=3)
            client.confirm("shop", first.batch_id)
            client.send(pb.HEARTBEATS)
            await client.ack()
            await store.restart()
            found = list(first.messages)
            while (message := await client.get("shop", fetch_size=50)).batch_id != -1:
                found += message.messages
                client.confirm("shop", message.batch_id)
            everything = rendered(shop)
            # At least once and in order: from the acked row's transaction on, nothing is missing.
            assert (
                found[-len(everything) + len(first.messages) :] == everything[len(first.messages) :]
            )
            await client.close()

    run(test)


@pytest.mark.parametrize("by", ["ack", "get"])
def test_a_takeover_voids_outstanding_batches_and_the_client_resumes(
    shop: Decoded, by: str
) -> None:
    """An ack of before the restart must never hit a batch of after it."""

    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            first = await client.get("shop", fetch_size=3)
            await store.restart()
            if by == "ack":
                client.confirm("shop", first.batch_id)
            client.ask("shop", fetch_size=3)
            answer = await client.ack()
            assert answer.error_code == 400
            assert "InstanceRestarted" in answer.error_message
            assert await client.ended()
            assert store.outstanding(1001) == []
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            assert list((await client.get("shop", fetch_size=3)).messages) == list(first.messages)
            await client.close()

    run(test)


def test_a_store_that_does_not_run_is_an_error_and_no_more(shop: Decoded) -> None:
    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            client = await RawClient.logged_in(server.port)
            await client.subscribe("shop")
            await store.halt()
            client.ask("shop")
            answer = await client.ack()
            assert answer.error_code == 400
            assert "destination:shop should start first" in answer.error_message
            await store.begin()
            assert (await client.get("shop", fetch_size=1)).messages
            await client.close()

    run(test)


def shape(data: bytes) -> str:
    """A server's answer with everything that differs from run to run taken out of it."""
    if data[4:8] == bytes.fromhex("10011801"):
        return "HANDSHAKE " + str(len(data))
    if data[4:6] == bytes.fromhex("1807"):
        return "MESSAGES without version"
    return data.hex()


def answers_in(transcript: Path) -> list[str]:
    """The shapes of a transcript's answers, in order."""
    lines = [line.split() for line in transcript.read_text().splitlines()]
    sent = b"".join(bytes.fromhex(digits) for _, way, _, digits in lines if way == "S>C")
    found = []
    while sent:
        size = 4 + int.from_bytes(sent[:4], "big")
        found.append(shape(sent[:size]))
        sent = sent[size:]
    return found


@pytest.mark.parametrize("name", ["SimpleCanalConnector", "canal-python-0.4"])
def test_the_transcripts_requests_get_answers_of_the_same_shape(shop: Decoded, name: str) -> None:
    """What real clients sent to a real Canal server is sent to ours, byte for byte."""

    async def test() -> None:
        store = ServedDestination(shop, released=0)
        async with serving({"example": store}) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            expected: list[str] = []
            got: list[str] = []
            incoming = b""
            answers = answers_in(WIRE / f"{name}.wire.txt")
            for line in (WIRE / f"{name}.wire.txt").read_text().splitlines():
                _, direction, _, digits = line.split()
                if direction == "C>S":
                    data = bytes.fromhex(digits)
                    # The transcript's tables become ours; its Java batches began at 3, ours at 1.
                    data = data.replace(b"live\\..*", b"shop\\..*")
                    if name.startswith("Simple"):
                        data = data.replace(b"1001\x18\x03", b"1001\x18\x01")
                        data = data.replace(b"1001\x18\x04", b"1001\x18\x02")
                    if answers[len(got) :] and answers[len(got)].startswith("MESSAGES"):
                        await store.release(1)  # it is there when the get comes
                    writer.write(data)
                    continue
                incoming += bytes.fromhex(digits)
                size = 4 + int.from_bytes(incoming[:4], "big")
                if len(incoming) < size:
                    continue  # the rest is in the next line
                expected.append(shape(incoming[:size]))
                incoming = incoming[size:]
                head = await asyncio.wait_for(reader.readexactly(4), 10)
                body = await asyncio.wait_for(reader.readexactly(int.from_bytes(head, "big")), 10)
                got.append(shape(head + body))
            assert len(expected) > 15
            assert any(answer.startswith("MESSAGES") for answer in expected)
            assert got == expected
            writer.close()
            await writer.wait_closed()

    run(test)


def test_a_replaced_connection_does_not_end_its_successors_subscription(shop: Decoded) -> None:
    """C4: over TCP, too. Gets are shared, as Canal's clients expect who open a new connection."""

    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            old, new, third = [await RawClient.logged_in(server.port) for _ in range(3)]
            await old.subscribe("shop")
            await new.subscribe("shop")
            assert (await old.get("shop", fetch_size=1)).batch_id == 1
            old.send(pb.UNSUBSCRIPTION, pb.Unsub(destination="shop", client_id="1001"))
            assert "SubscriberReplaced" in (await old.ack()).error_message
            assert (await new.get("shop", fetch_size=1)).batch_id == 2
            third.send(pb.UNSUBSCRIPTION, pb.Unsub(destination="shop", client_id="1001"))
            assert (await third.ack()).error_code == 0
            new.ask("shop")
            assert "should subscribe first" in (await new.ack()).error_message
            for client in (old, new, third):
                await client.close()

    run(test)


def test_a_subscriber_of_ray_is_not_shared_over_tcp(shop: Decoded) -> None:
    """D9: a connection that has not subscribed gets nobody's batches; one that does takes over."""

    async def test() -> None:
        store = ServedDestination(shop)
        async with serving({"shop": store}) as server:
            asked = SubscribeRequest(client_id=1001, filter="", holder="a connector")
            await store.call_async(DestinationApi.subscribe, asked)
            client = await RawClient.logged_in(server.port)
            client.ask("shop")
            assert "SubscriberReplaced" in (await client.ack()).error_message
            await client.subscribe("shop")  # with the rollback that comes before
            assert (await client.get("shop", fetch_size=1)).batch_id == 1
            await store.call_async(DestinationApi.subscribe, asked)
            for _ in range(2):
                client.ask("shop")
                assert "SubscriberReplaced" in (await client.ack()).error_message
            await client.close()

    run(test)
