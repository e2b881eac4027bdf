"""Which batches a caller was handed whose answers it never received, so that they come again.

A client repeats a get whose answer was lost, and gives up one that waits. The store has done what
it was asked all the same: then a batch is outstanding that nobody has, and the next one would come
before it. So each get says what its caller has received (`Caller`): what that caller was handed
beyond it is rolled back before the get is answered, and a get that is not its caller's newest any
more hands out nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence

from ray_canal.model.message import Caller

_CALLERS_MAX = 64
"""Batches of one subscriber; it has one record, or one for each TCP server that its clients have
used."""


class HandedOut:
    """The callers of one destination, and the batches that each was handed."""

    def __init__(self) -> None:
        self._newest: dict[int, OrderedDict[str, int]] = {}
        self._callers: dict[int, dict[int, str]] = {}

    def begin(self, client_id: int, caller: Caller | None) -> None:
        """Note a caller's get, which makes its earlier ones that still wait void (`is_void`)."""
        if caller is None:
            return
        newest = self._newest.setdefault(client_id, OrderedDict())
        newest[caller.id] = max(caller.number, newest.get(caller.id, 0))
        newest.move_to_end(caller.id)
        while len(newest) > _CALLERS_MAX:
            newest.popitem(last=False)

    def is_void(self, client_id: int, caller: Caller | None) -> bool:
        """Return whether the caller has made another get since."""
        newest = self._newest.get(client_id)
        if caller is None or newest is None:
            return False
        return caller.number < newest.get(caller.id, 0)

    def forget_others(self, known: Container[int]) -> None:
        """Forget all subscribers but these."""
        for client_id in [each for each in self._newest if each not in known]:
            del self._newest[client_id]
            self._callers.pop(client_id, None)

    def __len__(self) -> int:
        """Return of how many subscribers something is kept."""
        return len(self._newest)

    def unreceived(
        self, client_id: int, caller: Caller | None, epoch: int, outstanding: Sequence[int]
    ) -> int | None:
        """The first outstanding batch that the caller was handed and has not received."""
        callers = self._callers.get(client_id)
        if caller is None or not callers or self.is_void(client_id, caller):
            return None
        received = caller.received if caller.epoch == epoch else 0
        for batch_id in callers.keys() - set(outstanding):
            del callers[batch_id]
        lost = (each for each in callers if each > received and callers[each] == caller.id)
        return min(lost, default=None)

    def hand_out(self, client_id: int, caller: Caller | None, batch_id: int) -> None:
        """Note that a batch is sent to a caller."""
        if caller is not None:
            self._callers.setdefault(client_id, {})[batch_id] = caller.id
