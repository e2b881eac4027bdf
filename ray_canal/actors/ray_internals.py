"""Every private call of Ray's: what Ray offers no public way for. Tested with Ray 2.40 to 2.60.

Each is looked for when this is imported. Where one is missing, a plain way takes its place that
costs more (untracked references), notices less (object locations, addresses of a head) or waits
for a head that does not answer (calls of the key-value store with a limit). The key-value store
has no public counterpart; without it no deployment can be found, so its absence is an ImportError.

Untracked references: a reference in an answer makes who gets it a borrower of Ray's, which is three
calls between both processes for each object, two fifths of all that a chunk costs them. An
untracked one is the object's id and where its owner is. It can be read for as long as the owner has
a reference of its own; what was read (mapped from shared memory) stays, as with any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray._private import worker as ray_worker
from ray._raylet import CoreWorker  # type: ignore[attr-defined]
from ray.exceptions import RpcError
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

from ray_canal.errors import InstanceNotRunning

try:
    from ray.experimental import get_local_object_locations
except ImportError:  # tests/unit/actors/test_ray_internals.py sets it to this, too
    get_local_object_locations = None

try:
    from ray._private.state import state as _cluster_state
except ImportError:
    _cluster_state = None

try:
    from ray._private.services import resolve_ip_for_localhost
except ImportError:
    resolve_ip_for_localhost = None

try:
    from ray._private.services import find_gcs_addresses, get_ray_address_from_environment
except ImportError:
    get_ray_address_from_environment = None

try:
    from ray.experimental.internal_kv import internal_kv_get_gcs_client
except ImportError:
    internal_kv_get_gcs_client = None

T = TypeVar("T")
HAS_UNTRACKED = all(
    hasattr(CoreWorker, name)
    for name in ("serialize_object_ref", "deserialize_and_register_object_ref")
)
"""Else references in answers are Ray's own, tracked."""


@dataclass(frozen=True, slots=True)
class Untracked:
    """An object's id, its owner's address and what the owner knew of it, as Ray writes them."""

    object_id: bytes
    owner: bytes
    status: bytes


def untracked(payload: Any) -> Any:
    """Return an untracked reference to what a reference of Ray's refers to; anything else as it
    is. To be called where the object is owned, or borrowed."""
    if not HAS_UNTRACKED or not isinstance(payload, ray.ObjectRef):
        return payload
    found, owner, status = _core().serialize_object_ref(payload)
    return Untracked(found.binary(), owner, status)


def reference_of(each: Untracked) -> ray.ObjectRef[Any]:
    """Return a reference to be read in this process. Reading raises ObjectLostError when the owner
    has let the object go, OwnerDiedError when it has ended."""
    reference = ray.ObjectRef(each.object_id, each.owner, "")
    _core().deserialize_and_register_object_ref(
        each.object_id, ray.ObjectRef.nil(), each.owner, each.status
    )
    return reference


def _core() -> Any:
    worker = ray_worker.global_worker
    worker.check_connected()
    return worker.core_worker


def nodes_of(references: Sequence[Any]) -> dict[bytes, frozenset[str]]:
    """Return by object id the nodes on which objects lie that this process owns: a look-up each, no
    call. Empty sets where Ray cannot tell: then a loss is noticed when a client cannot read."""
    found: dict[Any, Any] = {}
    if references and get_local_object_locations is not None:
        found = get_local_object_locations(list(references))
    return {
        each.binary(): frozenset(found.get(each, {}).get("node_ids", ())) for each in references
    }


def joined_node() -> Any:
    """Return what stands for this process's membership in a cluster; None: it has none here (Ray
    Client), or Ray does not tell."""
    return getattr(ray_worker, "_global_node", None)


def raylet_socket(node: Any) -> str:
    """Return the path of the socket of the raylet of a `joined_node`; "" if it has none."""
    return getattr(node, "raylet_socket_name", None) or ""


def address_for_others(host: str) -> str:
    """Return the address by which other machines know this one, of a name of its loopback; any
    other host as it is."""
    if resolve_ip_for_localhost is None:
        return host
    found: str = resolve_ip_for_localhost(host)
    return found


def address_of_auto() -> str:
    """Return the address that `ray.init(address="auto")` would join, whether a cluster is still
    there or not; empty: it would find none, or Ray does not tell."""
    if get_ray_address_from_environment is None:
        return ""
    find_gcs_addresses.cache_clear()
    try:
        found: str = get_ray_address_from_environment("auto", None)
    except ConnectionError:
        return ""
    return found


def draining_nodes() -> frozenset[str]:
    """Return the ids of nodes that are about to end; none where Ray does not tell: then what runs
    there moves when they have ended."""
    if not hasattr(_cluster_state, "get_draining_nodes"):
        return frozenset()
    return frozenset(_cluster_state.get_draining_nodes())


def actor_id(handle: Any) -> str:
    """Return the id of one life of an actor's name."""
    found: str = handle._actor_id.hex()
    return found


def head_silent(what: object) -> InstanceNotRunning:
    """Return the error for a head that does not answer; `what` says how it was noticed."""
    return InstanceNotRunning(
        f"Ray's head does not answer ({what}): its process `gcs_server` on the head node is "
        "stopped, or has no CPU or memory; wait until it runs, or start the head again"
    )


def kv_get(key: str, limit_s: float | None = None) -> str | None:
    """Return a value of Ray's key-value store, which lives as long as the cluster's head. While
    that is away, wait for it; with a limit raise InstanceNotRunning after so long."""
    found = _limited(
        limit_s,
        lambda head: head.internal_kv_get(key.encode(), None, limit_s),
        lambda: _internal_kv_get(key),
    )
    return None if found is None else found.decode()


def kv_put(key: str, value: str, *, overwrite: bool = True, limit_s: float | None = None) -> bool:
    """Store a value. Return whether there was one before, which counts without `overwrite`.
    `limit_s`: as of `kv_get`; a head that goes on after that may store it nevertheless."""
    return _limited(
        limit_s,
        lambda head: not head.internal_kv_put(
            key.encode(), value.encode(), overwrite, None, limit_s
        ),
        lambda: bool(_internal_kv_put(key, value, overwrite=overwrite)),
    )


def kv_delete(key: str, limit_s: float | None = None) -> bool:
    """Delete a value. Return whether there was one: of several who delete it, one is told so.
    `limit_s`: as of `kv_put`."""
    return _limited(
        limit_s,
        lambda head: bool(head.internal_kv_del(key.encode(), False, None, limit_s)),
        lambda: bool(_internal_kv_del(key)),
    )


def kv_keys(prefix: str, limit_s: float | None = None) -> list[str]:
    """Return the keys that begin so. `limit_s`: as of `kv_get`."""
    found = _limited(
        limit_s,
        lambda head: head.internal_kv_keys(prefix.encode(), None, limit_s),
        lambda: _internal_kv_list(prefix),
    )
    return [key.decode() for key in found]


def kv_all(prefix: str, limit_s: float | None = None) -> dict[str, str]:
    """Return the values of all keys that begin so, in two calls. `limit_s`: as of `kv_get`."""
    keys = sorted(kv_keys(prefix, limit_s))
    if not keys or not hasattr(_head_client(), "internal_kv_multi_get"):
        found = {key: kv_get(key, limit_s) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def all_from(head: Any) -> dict[bytes, bytes]:
        return dict(head.internal_kv_multi_get([key.encode() for key in keys], None, limit_s))

    values = _limited(limit_s, all_from, lambda: all_from(_head_client()))
    return {key: values[key.encode()].decode() for key in keys if key.encode() in values}


def _head_client() -> Any:
    return None if internal_kv_get_gcs_client is None else internal_kv_get_gcs_client()


def _limited(limit_s: float | None, ask: Callable[[Any], T], plain: Callable[[], T]) -> T:
    """Ask by Ray's own client of its head, which alone takes a limit; without one, or in a Ray
    Client, which has none here, in the plain way."""
    client = _head_client()
    if limit_s is None or client is None:
        return plain()
    try:
        return ask(client)
    except RpcError as error:
        raise head_silent(f"{error} after {limit_s:g} s") from None
