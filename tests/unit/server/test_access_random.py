"""Whatever users ask for, in whatever order: a store hears of nothing that they may not do."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.config import ServerConfig
from ray_canal.destination.api import DestinationApi, GetRequest, PollRequest, SubscribeRequest
from tests.canal_client import RawClient
from tests.served_destination import Decoded, ServedDestination
from tests.unit.server.conftest import run, serving

_RIGHTS = st.sets(st.sampled_from(["read", "ack", "subscribe", "admin"]), min_size=1)
_IDS = st.sampled_from(["", "7", "7-8", "8,9"])
_DESTINATIONS = st.sampled_from([("shop",), ("crm",), ("*",), ("s*", "x")])
_REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["subscribe", "filter", "unsubscribe", "get", "auto", "poll", "ack", "rollback"]
        ),
        st.sampled_from(["shop", "crm"]),
        st.sampled_from([7, 8]),
    ),
    max_size=12,
)


class Heard(ServedDestination):
    """A store that notes what it is asked to do."""

    def __init__(self, chunks: Decoded) -> None:
        super().__init__(chunks)
        self.heard: list[tuple[str, int]] = []
        self._filters: dict[int, str] = {}

    async def call_async(self, method: Any, request: Any) -> Any:
        client_id = request.client_id
        if isinstance(request, SubscribeRequest):
            changes = self._filters.get(client_id) != request.filter
            self.heard.append(("make" if changes else "again", client_id))
            self._filters[client_id] = request.filter
        elif method is not DestinationApi.filter_of:
            if method is DestinationApi.unsubscribe:
                self._filters.pop(client_id, None)
            self.heard.append((method.__name__.removesuffix("_all"), client_id))
        return await super().call_async(method, request)

    async def take(self, request: GetRequest) -> Any:
        self.heard.append(("get", request.client_id))
        if isinstance(request, PollRequest) and request.done:
            self.heard.append(("ack", request.client_id))
        return await super().take(request)


NEEDS = {"make": "subscribe", "again": "read", "get": "read", "rollback": "read", "ack": "ack"}


async def _ask(client: RawClient, what: str, destination: str, client_id: int) -> None:
    """Send a request and a heartbeat, and read up to its answer."""
    who = {"destination": destination, "client_id": str(client_id)}
    if what in ("subscribe", "filter"):
        client.send(pb.SUBSCRIPTION, pb.Sub(**who, filter="" if what == "subscribe" else "a"))
    elif what == "unsubscribe":
        client.send(pb.UNSUBSCRIPTION, pb.Unsub(**who))
    elif what in ("get", "auto"):
        client.ask(destination, str(client_id), fetch_size=1, auto_ack=what == "auto")
    elif what == "poll":
        client.ask(destination, str(client_id), timeout=1, poll=True, done=1)
    elif what == "ack":
        client.confirm(destination, 1, str(client_id))
    else:
        client.send(pb.CLIENTROLLBACK, pb.ClientRollback(**who))
    silent = what in ("ack", "rollback")
    client.send(pb.HEARTBEATS)
    packet = await client.read()
    answer = packet
    if silent and packet.type == pb.ACK and not pb.Ack.FromString(packet.body).error_code:
        return  # the heartbeat's: nothing was wrong
    assert answer.type in (pb.ACK, pb.MESSAGES)
    await client.ack()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_RIGHTS, _IDS, _DESTINATIONS, _REQUESTS)
def test_nothing_is_done_without_its_right(
    shop: Decoded,
    rights: set[str],
    client_ids: str,
    destinations: tuple[str, ...],
    requests: list[tuple[str, str, int]],
) -> None:
    """C1: per destination, per client id, per kind of call."""
    user = {
        "username": "u",
        "password": "p",
        "rights": sorted(rights),
        "client_ids": client_ids,
        "destinations": destinations,
    }
    ranges = ServerConfig.model_validate({"user": [user]}).user[0].client_id_ranges
    stores = {"shop": Heard(shop[:1]), "crm": Heard(shop[:1])}

    async def story() -> None:
        async with serving(stores, user=[user]) as server:
            client = await RawClient.open(server.port)
            assert (await client.log_in("u", "p")).error_code == 0
            for request in requests:
                await _ask(client, *request)
            await client.close()

    run(story)
    for name, store in stores.items():
        if store.heard:
            wide = "*" in destinations or ("s*" in destinations and name == "shop")
            assert wide or name in destinations
        for what, client_id in store.heard:
            owns = any(client_id in each for each in ranges)
            assert owns or not ranges
            if what == "unsubscribe":
                assert "admin" in rights or ("subscribe" in rights and owns)
            else:
                assert "admin" in rights or {"read", NEEDS[what]} <= rights
