"""How Ray places our actors: what they ask for, where they run, and the groups of their calls."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ray_canal.config.node import NodeSelector

# Actors wait on sockets and on each other, so they ask for no CPU and never block a decode task's
# slot.
ACTOR_CPUS = 0
HEAD_RESOURCE = "node:__internal_head__"
_A_BIT = 0.001
# The controller stays on the head node, and so do stores whose cursors are in a file there.
ON_HEAD = {"resources": {HEAD_RESOURCE: _A_BIT}}
# Calls that must pass while a long poll of the same actor is waiting.
CONTROL_GROUP = "control"
# The one call that asks whether an actor's process runs.
HEALTH_GROUP = "health"


def ask_alive(actor: Any) -> Any:
    """Ask a stage's actor whether its process runs; return the reference of its answer."""
    return actor.alive.options(concurrency_group=HEALTH_GROUP).remote()


def outliving(name: str, namespace: str, where: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the options of an actor that outlives who makes it, is made once, and is restarted by
    Ray indefinitely; its constructor is its recovery."""
    return {
        "name": name,
        "namespace": namespace,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": ACTOR_CPUS,
        "max_restarts": -1,
        "max_task_retries": 0,
        **where,
        **more,
    }


def where(selector: NodeSelector) -> dict[str, Any]:
    """Return the options of an actor that Ray itself puts on a node that the selector means."""
    if selector.head:
        return {**ON_HEAD}
    found: dict[str, Any] = {}
    if selector.resources:
        found["resources"] = dict.fromkeys(selector.resources, _A_BIT)
    if selector.labels:
        found["label_selector"] = selector.labels
    return found


def on_node(node: str) -> dict[str, Any]:
    """Return the options of an actor that runs on this node and ends with it; "": on the head."""
    if not node:
        return ON_HEAD
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def this_node() -> str:
    """Return the id of the node of this process."""
    found: str = ray.get_runtime_context().get_node_id()
    return found


def on_this_node() -> dict[str, Any]:
    """Return the options of an actor that runs on the node of this process, if that takes any."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(this_node(), soft=True)}


def spread(node: str) -> dict[str, Any]:
    """Return the options of actors that run on several nodes, of those that a selector's text
    means; "": on the node of this process, which is known to reach the source."""
    if not node:
        return on_this_node()
    return where(NodeSelector.parse(node)) | {"scheduling_strategy": "SPREAD"}
