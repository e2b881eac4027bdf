"""The newest batch ids of clients that have left: a client that returns gets higher ones."""

from __future__ import annotations

from collections import OrderedDict

_CLIENTS_MAX = 1024


class LastBatchIds:
    """Last batch ids by client, of the last thousand that left. Of who left before them only the
    highest id is kept: ids have to rise, not to be without gaps."""

    def __init__(self, start: int) -> None:
        self._lowest = start
        self._ids: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, client_id: int) -> int:
        return self._ids.get(client_id, self._lowest)

    def put(self, client_id: int, batch_id: int) -> None:
        self._ids[client_id] = max(batch_id, self.get(client_id))
        self._ids.move_to_end(client_id)
        if len(self._ids) > _CLIENTS_MAX:
            self._lowest = max(self._lowest, self._ids.popitem(last=False)[1])
