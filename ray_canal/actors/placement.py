"""How Ray places our actors: what they ask for, and the groups of their calls."""

from __future__ import annotations

# Actors wait on sockets and on each other, so they ask for no CPU and never block a decode task's
# slot.
ACTOR_CPUS = 0
# The controller and the stores stay on the head node, where the meta file is.
ON_HEAD = {"node:__internal_head__": 0.001}
# Calls that must pass while a long poll of the same actor is waiting.
CONTROL_GROUP = "control"
# The one call that asks whether an actor's process runs.
HEALTH_GROUP = "health"
