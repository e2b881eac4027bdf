"""Chunks of a log that were lost with the node on which they lay.

A decoded chunk is on the node that decoded it; the store, which owns it, keeps a reference. When
that node dies, Ray decodes the chunk again elsewhere, for which it keeps the raw chunk. It cannot
if that lay there, too, or if it has tried as often as it may. Then a chunk of the log is gone; the
binlog has it still, so the log begins again from its subscribers' cursors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import ray
from ray.exceptions import ObjectLostError, OwnerDiedError, RayError

from ray_canal.actors.answers import answered
from ray_canal.actors.ray_internals import nodes_of
from ray_canal.model.message import Payload

_READ_S = 30.0
"""A chunk that cannot be read in this time is tried again later: it may wait for a CPU to be
decoded."""


def may_be_lost(error: RayError) -> bool:
    """Return whether a chunk is not to be had although its owner lives. (A decode task that lacks
    its raw chunk fails with what that one's reader would have seen.)"""
    return isinstance(error, ObjectLostError) and not isinstance(error, OwnerDiedError)


class RayChunkWatch:
    """The chunks of one log: finds out which of its chunks are lost. Only their owner may ask."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, frozenset[str]] = {}
        """Where each chunk was when it could be read. By id: a reference would keep its chunk."""

    async def lost(self, payloads: Iterable[Payload]) -> bool:
        """Return whether some of these are lost. Only those are read that are where they were not
        before: what was lost with a node is now at its owner's, as an error, or decoded again."""
        return await self._any_unreadable(self._moved(payloads))

    def _moved(self, payloads: Iterable[Payload]) -> list[Any]:
        references = [each for each in payloads if isinstance(each, ray.ObjectRef)]
        found = nodes_of(references)
        self._nodes = {each: self._nodes[each] for each in found if each in self._nodes}
        moved = []
        for reference in references:
            now = found[reference.binary()]
            before = self._nodes.setdefault(reference.binary(), now)
            # A small one is on no node: it is with its owner.
            if now.isdisjoint(before) and (now or before):
                moved.append(reference)
        return moved

    async def unreadable(self, payloads: Iterable[Payload], told: Sequence[Payload]) -> bool:
        """Return whether some of `told`, which a client could not read, are the log's and lost."""
        mine = {each for each in payloads if isinstance(each, ray.ObjectRef)}
        return await self._any_unreadable(mine.intersection(told))

    async def _any_unreadable(self, references: Collection[Any]) -> bool:
        """One after the other: they are large."""
        for reference in references:
            if await self._is_unreadable(reference):
                return True
        return False

    async def _is_unreadable(self, reference: Any) -> bool:
        try:
            await answered(_READ_S, reference)
        except asyncio.TimeoutError:
            return False
        except RayError:
            return True
        self._nodes.update(nodes_of([reference]))
        return False

