"""The session table: each row, then random packets against a model that is a few lines long."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.session import (
    LOGIN_BYTES_MAX,
    TRANSITIONS,
    Ack,
    Close,
    Get,
    Identity,
    Login,
    ReplyBytes,
    Rollback,
    Session,
    State,
    Subscribe,
    Unsubscribe,
)

ORDERS = Identity("orders", 1001)
LOGIN = packets.framed(pb.CLIENTAUTHENTICATION, pb.ClientAuth())


def session(*, admitted: bool = True, **limits: int) -> Session:
    made = Session(limits.get("packet_bytes_max", 1 << 16), limits.get("requests_max", 100))
    if admitted:
        made.receive(LOGIN)
        assert isinstance(made.next(), Login)
        made.admit()
    return made


def frame(kind: int, body: Any = None, **fields: Any) -> bytes:
    if body is not None:
        body = body(destination="orders", client_id="1001", **fields)
    return packets.framed(kind, body)


def error(answer: Any) -> tuple[int, str]:
    data = answer.data if isinstance(answer, ReplyBytes) else answer
    packet = packets.parsed_packet(data[4:])
    assert packet.type == pb.ACK
    body = packets.parsed(pb.Ack, packet.body)
    return body.error_code, body.error_message


@pytest.mark.parametrize(
    ("data", "step"),
    [
        (frame(pb.SUBSCRIPTION, pb.Sub, filter="a,b"), Subscribe(ORDERS, "a,b")),
        (frame(pb.UNSUBSCRIPTION, pb.Unsub), Unsubscribe(ORDERS)),
        (frame(pb.GET, pb.Get, fetch_size=5, timeout=2, unit=3), Get(ORDERS, 5, 2.0, False)),
        (frame(pb.GET, pb.Get, timeout=-1, auto_ack=True), Get(ORDERS, 0, None, True)),
        (frame(pb.CLIENTACK, pb.ClientAck, batch_id=7), Ack(ORDERS, 7)),
        (frame(pb.CLIENTROLLBACK, pb.ClientRollback), Rollback(ORDERS, None)),
        (frame(pb.CLIENTROLLBACK, pb.ClientRollback, batch_id=7), Rollback(ORDERS, 7)),
        (frame(pb.HEARTBEATS), ReplyBytes(packets.acknowledged())),
        (frame(pb.CLIENTACK, pb.ClientAck, batch_id=-1), None),
    ],
)
def test_each_row_of_the_table(data: bytes, step: Any) -> None:
    one = session()
    one.receive(data)
    assert one.next() == step
    assert one.next() is None
    assert one.state is State.SERVING


@pytest.mark.parametrize(
    "kind", [pb.SUBSCRIPTION, pb.UNSUBSCRIPTION, pb.GET, pb.CLIENTACK, pb.CLIENTROLLBACK]
)
@pytest.mark.parametrize(("destination", "client_id"), [("", "1001"), ("orders", "")])
def test_without_destination_or_client_the_code_is_401(
    kind: int, destination: str, client_id: str
) -> None:
    one = session()
    one.receive(packets.framed(kind, pb.ClientAck(destination=destination, client_id=client_id)))
    assert error(one.next()) == (401, "destination or clientId is null")
    assert one.state is State.SERVING


def test_an_ack_of_batch_0_is_402_and_a_client_id_that_is_no_number_400() -> None:
    one = session()
    one.receive(frame(pb.CLIENTACK, pb.ClientAck))
    assert error(one.next()) == (402, "batchId should assign value")
    one.receive(packets.framed(pb.GET, pb.Get(destination="orders", client_id="abc")))
    code, text = error(one.next())
    assert (code, "abc" in text) == (400, True)


@pytest.mark.parametrize("kind", [pb.HANDSHAKE, pb.DUMP, pb.SHUTDOWN, pb.MESSAGES, pb.ACK, 0, 99])
def test_other_packets_are_answered_by_400_and_nothing_changes(kind: int) -> None:
    one = session()
    one.receive(frame(kind) + frame(pb.HEARTBEATS))
    code, text = error(one.next())
    assert code == 400
    assert text.endswith("is NOT supported!")
    assert one.next() == ReplyBytes(packets.acknowledged())


def test_the_login_carries_what_the_transcripts_client_sends() -> None:
    one = session(admitted=False)
    data = bytes.fromhex(
        "0000003818022a3412283938363165313864623736323833643166663565366166343430316437656464366238"
        "3664663730"
        "1880dddb012080dddb01"
    )
    one.receive(data)
    answer = b"9861e18db76283d1ff5e6af4401d7edd6b86df70"
    assert one.next() == Login("", answer, 3_600_000, 3_600_000, None)
    assert one.admit() == packets.acknowledged()


def test_a_login_may_subscribe() -> None:
    one = session(admitted=False)
    one.receive(frame(pb.CLIENTAUTHENTICATION, pb.ClientAuth, filter="x", net_read_timeout=-5))
    assert one.next() == Login("", b"", 0, 0, Subscribe(ORDERS, "x"))


def test_a_wrong_login_ends_the_connection() -> None:
    one = session(admitted=False)
    one.receive(LOGIN + frame(pb.HEARTBEATS))
    assert isinstance(one.next(), Login)
    assert error(one.deny("auth failed for user:eve")) == (400, "auth failed for user:eve")
    assert one.next() == Close("auth failed for user:eve")
    one.receive(frame(pb.HEARTBEATS))
    assert one.next() is None


@pytest.mark.parametrize("kind", sorted(set(pb.PacketType.values()) - {pb.CLIENTAUTHENTICATION}))
def test_nothing_before_the_login(kind: int) -> None:
    one = session(admitted=False)
    one.receive(frame(kind))
    assert error(one.next())[0] == 400
    assert isinstance(one.next(), Close)


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03\xff\xff\xff", b"GET / HTTP/1.1"]
)
@pytest.mark.parametrize("admitted", [True, False])
def test_garbage_gives_an_error_and_the_end(data: bytes, admitted: bool) -> None:
    one = session(admitted=admitted)
    one.receive(data)
    assert error(one.next())[0] == 400
    assert isinstance(one.next(), Close)


def test_good_requests_before_garbage_are_served() -> None:
    one = session()
    one.receive(frame(pb.CLIENTACK, pb.ClientAck, batch_id=1) + struct.pack(">i", 1 << 30))
    assert one.next() == Ack(ORDERS, 1)
    assert "packet_bytes_max" in error(one.next())[1]
    assert isinstance(one.next(), Close)


def test_before_the_login_packets_are_short() -> None:
    long = packets.framed(
        pb.SUBSCRIPTION, pb.Sub(destination="orders", client_id="1", filter="x" * LOGIN_BYTES_MAX)
    )
    one = Session(1 << 20, 100)
    one.receive(long)
    assert error(one.next())[0] == 400
    assert isinstance(one.next(), Close)
    one = Session(1 << 20, 100)
    one.receive(LOGIN)
    assert isinstance(one.next(), Login)
    one.admit()
    one.receive(long)
    assert isinstance(one.next(), Subscribe)


def test_too_many_waiting_requests_end_the_connection() -> None:
    one = session(requests_max=3)
    one.receive(frame(pb.HEARTBEATS) * 3)
    assert [one.next() for _ in range(3)] == [ReplyBytes(packets.acknowledged())] * 3
    one.receive(frame(pb.HEARTBEATS) * 4)
    answers = []
    while not isinstance(step := one.next(), Close):
        answers.append(step)
    assert "requests_max" in error(answers[-1])[1]


def test_too_many_waiting_bytes_end_the_connection() -> None:
    """A hundred requests may wait, but not a hundred of the largest."""
    large = packets.framed(
        pb.SUBSCRIPTION, pb.Sub(destination="orders", client_id="1", filter="x" * 400)
    )
    one = Session(1000, 100)
    one.receive(LOGIN)
    one.next()
    one.admit()
    for _ in range(5):
        one.receive(large)
        assert isinstance(one.next(), Subscribe)
    one.receive(large * 3)
    steps = []
    while not isinstance(step := one.next(), Close):
        steps.append(step)
    assert "packet_bytes_max" in error(steps[-1])[1]


def test_answers_have_canals_shapes() -> None:
    one = session()
    get = Get(ORDERS, 1, None, False)
    assert one.done(get) == packets.no_messages()
    assert (
        one.done(Subscribe(ORDERS, "")) == one.done(Unsubscribe(ORDERS)) == packets.acknowledged()
    )
    assert one.done(Ack(ORDERS, 1)) == one.done(Rollback(ORDERS, 1)) == b""
    assert error(one.failed("no")) == (400, "no")
    assert one.next() is None
    assert error(one.failed("gone", close=True)) == (400, "gone")
    assert one.next() == Close("gone")


# --- random packets ----------------------------------------------------------------------------

BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=30),
    st.builds(
        lambda destination, client, batch: pb.ClientAck(
            destination=destination, client_id=client, batch_id=batch
        ).SerializeToString(),
        st.sampled_from(["", "orders"]),
        st.sampled_from(["", "1001", "x", "-3", "9" * 40]),
        st.integers(-2, 3),
    ),
)
PACKETS = st.builds(
    lambda kind, body: pb.Packet(type=kind, body=body).SerializeToString(),
    st.integers(0, 14),
    BODIES,
)
CHUNKS = st.lists(
    st.one_of(
        PACKETS.map(lambda raw: struct.pack(">i", len(raw)) + raw),
        st.binary(max_size=12).map(lambda raw: struct.pack(">i", len(raw)) + raw),
        st.just(LOGIN),
        st.just(frame(pb.HEARTBEATS)),
        st.binary(min_size=1, max_size=9),
    ),
    max_size=12,
)


@given(CHUNKS, st.data())
def test_random_packets_keep_the_promises(chunks: list[bytes], data: st.DataObject) -> None:
    """Whatever comes, in whatever pieces: no exception; nothing is served before a login that was
    admitted; every step is in the table; an end is one error and one Close, and then silence."""
    one = Session(200, 6)
    stream, closed, admitted = b"".join(chunks), False, False
    while stream:
        size = data.draw(st.integers(1, 60))
        one.receive(stream[:size])
        stream = stream[size:]
        assert one.waiting <= 7
        while (step := one.next()) is not None:
            assert not closed, "a step after Close"
            if isinstance(step, Close):
                closed = True
            elif isinstance(step, Login):
                assert not admitted
                admitted = data.draw(st.booleans())
                if admitted:
                    one.admit()
                else:
                    assert error(one.deny("no"))[0] == 400
            elif isinstance(step, ReplyBytes):
                answer = packets.parsed_packet(step.data[4:])
                assert answer.type == pb.ACK
                if packets.parsed(pb.Ack, answer.body).error_code == 0:
                    assert admitted, "a heartbeat was answered before the login"
            else:
                assert admitted, f"{step} before the login"
                if data.draw(st.booleans()):
                    one.failed("no")
                else:
                    one.done(step)
    if closed:
        assert one.state is State.CLOSED
        assert one.next() is None


def test_the_table_and_its_text_agree() -> None:
    from ray_canal.canal import session as module

    assert module.__doc__ is not None
    for _, kind in TRANSITIONS:
        assert pb.PacketType.Name(kind) in module.__doc__


@pytest.mark.parametrize("kind", [pb.Sub, pb.Unsub, pb.Get, pb.ClientAck, pb.ClientRollback])
@pytest.mark.parametrize("client_id", ["-1", "-2147483648", "2147483648", "x"])
def test_a_client_id_that_no_subscriber_has_is_refused(kind: Any, client_id: str) -> None:
    """C4: -1 is the key of the destination's filter record."""
    numbers = {
        pb.Sub: pb.SUBSCRIPTION, pb.Unsub: pb.UNSUBSCRIPTION, pb.Get: pb.GET,
        pb.ClientAck: pb.CLIENTACK, pb.ClientRollback: pb.CLIENTROLLBACK,
    }  # fmt: skip
    one = session()
    body = kind(destination="orders", client_id=client_id)
    one.receive(packets.framed(numbers[kind], body))
    code, text = error(one.next())
    assert code == 400
    assert "is no number from 0 to" in text
