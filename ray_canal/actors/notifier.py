"""The notifier actor: looks at every destination of the cluster and tells what has changed.

Soft state alone: after a restart it tells again what is wrong then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import Any

from ray.exceptions import RayError

from ray_canal.actors import registry
from ray_canal.actors.answers import ANSWER_S, answered
from ray_canal.actors.log_settings import take_up_log_settings
from ray_canal.actors.priority import as_ray_itself
from ray_canal.actors.store_calls import DestinationHandle
from ray_canal.config.notify import NotifyConfig
from ray_canal.config.secret import secret
from ray_canal.destination.api import DestinationApi
from ray_canal.destination.status.notices import Notices
from ray_canal.destination.status.webhook import Webhook
from ray_canal.errors import CanalError

logger = logging.getLogger(__name__)


class NotifierActor:
    """One for a deployment."""

    # Ray awaits an async constructor of an async actor.
    async def __init__(self, notify_json: str, namespace: str) -> None:  # type: ignore[misc]
        as_ray_itself()
        take_up_log_settings(namespace)
        config = NotifyConfig.model_validate_json(notify_json)
        self._json = notify_json
        self._namespace = namespace
        self._every_s = config.every_s
        self._looks = 0
        self._notices = Notices(config)
        self._webhook: Webhook | None = None
        if config.url:
            self._webhook = Webhook(
                lambda: secret(config.url),
                lambda: secret(config.secret),
                timeout_s=config.timeout_s,
                retry_s=config.retry_s,
            )
        self._watch = asyncio.create_task(self._keep_looking())

    async def configuration(self) -> str:
        """Return what it was made with."""
        return self._json

    async def looks(self) -> int:
        """Return how often all destinations were looked at."""
        return self._looks

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._look()
                self._looks += 1
            except Exception as error:
                # Whatever happened to one look, the next one comes.
                logger.warning("the destinations could not be looked at: %s", error)
            await asyncio.sleep(self._every_s)

    async def _look(self) -> None:
        # The look-up asks Ray's head node and waits for it: not on the event loop.
        stores = await asyncio.to_thread(registry.find_stores, self._namespace)
        found = await asyncio.gather(*map(_status, stores.values()))
        for notice in self._notices.look(dict(zip(stores, found, strict=True))):
            tree = {**notice.as_dict(), "at": int(time.time()), "namespace": self._namespace}
            log = logger.info if notice.kind == "resolved" else logger.warning
            log("notice %s", json.dumps(tree))
            if self._webhook is not None:
                self._webhook.send(tree)


async def _status(store: DestinationHandle | None) -> dict[str, Any]:
    with contextlib.suppress(RayError, CanalError, asyncio.TimeoutError):
        if store is not None:
            status = store.submit(DestinationApi.status)
            answer: dict[str, Any] = await answered(ANSWER_S, status)
            return answer
    return {"state": "restarting"}
