"""References that are lent: the owner keeps the object, and Ray notes no borrower.

A reference in an answer makes who gets it a borrower of Ray's: three calls between both processes
for each object, two fifths of all that a chunk costs them. A lent one is the object's id and where
its owner is. It can be read for as long as the owner has a reference of its own; what was read
(mapped from shared memory) stays, as with any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray._private import worker as ray_worker


@dataclass(frozen=True, slots=True)
class Lent:
    """An object's id, its owner's address and what the owner knew of it, as Ray writes them."""

    object_id: bytes
    owner: bytes
    status: bytes


def lent(reference: ray.ObjectRef[Any]) -> Lent:
    """To be called where the object is owned, or borrowed."""
    found, owner, status = _core().serialize_object_ref(reference)
    return Lent(found.binary(), owner, status)


def reference_of(each: Lent) -> ray.ObjectRef[Any]:
    """To be read in this process. Reading raises ObjectLostError when the owner has let it go,
    OwnerDiedError when it has ended."""
    reference = ray.ObjectRef(each.object_id, each.owner, "")
    _core().deserialize_and_register_object_ref(
        each.object_id, ray.ObjectRef.nil(), each.owner, each.status
    )
    return reference


def _core() -> Any:
    worker = ray_worker.global_worker
    worker.check_connected()
    return worker.core_worker
