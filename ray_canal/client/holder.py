"""The holder of a subscription: an id that a connector takes when it first subscribes."""

from __future__ import annotations

import uuid

from ray_canal.destination.api import ClientRequest, SubscribeRequest
from ray_canal.errors import NotSubscribed


def holder_for(request: ClientRequest, holder: str, destination: str) -> str:
    """Return the holder that sends a request: the one it has, or a new one for a first subscribe.

    Raises:
        NotSubscribed: the connector has no holder, and the request is not a subscribe.
    """
    if holder:
        return holder
    if isinstance(request, SubscribeRequest):
        return uuid.uuid4().hex
    raise NotSubscribed(
        f"clientId:{request.client_id} should subscribe first: this connector has not. "
        "subscribe() goes on at the client's cursor and takes over from whoever has it"
    ).at(destination=destination)
