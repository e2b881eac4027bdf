"""Several heads of one deployment: to take part, to ask which one is active, to leave."""

from __future__ import annotations

import logging
import time
from typing import Any

from ray_canal.actors import registry
from ray_canal.actors.answers import ANSWER_S
from ray_canal.client.controller_calls import BEGIN_S, BUSY_S, answer, ask_controller
from ray_canal.client.joining import connect_ray
from ray_canal.config import CanalConfig

logger = logging.getLogger(__name__)

_LEASES = 1.5
"""A head that died is certainly replaced after so many times the lease; and it takes a moment."""
_MOMENT_S = 10.0
_LEAVE_S = 60.0


def take_part(canal: CanalConfig, controller: Any) -> bool:
    """Let the head of this cluster wait for its turn. Return whether it is active: at once, or
    because the one before has just ended."""
    ask_controller(controller, "stand_by", canal.model_dump_json(), first_s=BEGIN_S)
    deadline = time.monotonic() + _LEASES * canal.ray.lease_s + _MOMENT_S
    waits_until = time.monotonic() + _LEASES * canal.ray.lease_s
    while True:
        state = answer(controller.standing.remote(), BUSY_S)
        if state["active"]:
            return True
        now = time.monotonic()
        if now > (deadline if state["error"] or state["begins"] else waits_until):
            break
        time.sleep(0.1)
    logger.warning(
        "%s: this head waits as a standby; %s is active%s",
        canal.ray.namespace,
        state["head"],
        f" ({state['error']})" if state["error"] else "",
    )
    return False


def standing(*, namespace: str = registry.NAMESPACE) -> dict[str, Any] | None:
    """Return whether the head of this cluster is `active`, the name of the `head` that is, and the
    last `error` of asking for that; None: it shares its deployment with no other head. Raises
    InstanceNotRunning: the controller does not answer."""
    connect_ray(local=False)
    controller = registry.find_actor(registry.CONTROLLER_NAME, namespace)
    if controller is None:
        return None
    found: dict[str, Any] | None = answer(controller.standing.remote(), ANSWER_S)
    return found


def leave(*, namespace: str = registry.NAMESPACE) -> None:
    """End what runs in this cluster, so that another head of the deployment begins at once. A later
    start takes part again. Raises InstanceNotRunning: the controller does not answer."""
    connect_ray(local=False)
    controller = registry.find_actor(registry.CONTROLLER_NAME, namespace)
    if controller is not None:
        answer(controller.leave.remote(), _LEAVE_S)
