"""explain: why nothing comes from a destination."""

from __future__ import annotations

import contextlib

from ray_canal.actors import registry
from ray_canal.client.api import status
from ray_canal.client.subscribers import subscribers
from ray_canal.destination.status.diagnosis import Diagnosis, diagnose
from ray_canal.errors import ConfigError, InstanceError
from ray_canal.model.reports import SubscriberReport


def explain(
    destination: str, client_id: int | None = None, *, namespace: str = registry.NAMESPACE
) -> Diagnosis:
    """Return why nothing (more) comes from a destination, to one of its subscribers if `client_id`
    names it: the stage, the evidence, what to do. Its `str` is one paragraph.

    Also while the destination starts or has failed. Raises InstanceNotFound.
    """
    found = {"destination": destination, **status(destination, namespace=namespace)[destination]}
    records: list[SubscriberReport] | None = None
    if found["state"] not in ("restarting", "stopped"):
        with contextlib.suppress(InstanceError, ConfigError):  # the status tells why
            records = subscribers(destination, namespace=namespace)[destination]
    return diagnose(found, records, client_id)
