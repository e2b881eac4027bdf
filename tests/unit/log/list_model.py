"""The log as a plain list: what an EventStore must do, entry by entry, with no regard to speed."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.log.made_log import ALTER, ERASE, MadeEntry, MadeLog


@dataclass
class ModelSubscriber:
    """`next` and `acked` count entries of the whole log; `skipped`: consumed before this
    generation."""

    admits: frozenset[str]
    next: int
    acked: int
    skipped: frozenset[int] = frozenset()
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    last_id: int = 0

    def sees(self, index: int, entry: MadeEntry) -> bool:
        return index not in self.skipped and (not entry.name or entry.name in self.admits)


class ListModel:
    """`put` counts the entries that are in the log."""

    def __init__(self, log: MadeLog, by_memory: bool, unit: int, ddl_isolation: bool) -> None:
        self.log, self.by_memory, self.unit = log, by_memory, unit
        self.ddl_isolation = ddl_isolation
        self.put = 0
        self.subscribers: dict[int, ModelSubscriber] = {}

    def visible(self, client_id: int) -> list[int]:
        """What a subscriber is still to get."""
        subscriber = self.subscribers[client_id]
        entries = self.log.entries
        return [i for i in range(subscriber.next, self.put) if subscriber.sees(i, entries[i])]

    def batch(self, client_id: int, batch_size: int) -> tuple[list[int], bool]:
        """(entries of the next get, whether the batch is full)."""
        left = batch_size * (self.unit if self.by_memory else 1)
        found: list[int] = []
        for index in self.visible(client_id):
            entry = self.log.entries[index]
            is_ddl = self.ddl_isolation and entry.event_type in (ALTER, ERASE)
            cost = entry.length if self.by_memory else 1
            if found and (cost > left or is_ddl):
                return found, True
            found.append(index)
            left -= cost
            if is_ddl:
                return found, True
        return found, left <= 0 and bool(found)

    def get(self, client_id: int, found: list[int], end: int) -> None:
        """Hand out a batch that ends before `end`: at its last entry, or behind more that is
        filtered."""
        subscriber = self.subscribers[client_id]
        between = range(found[-1] + 1 if found else subscriber.next, end)
        assert not any(subscriber.sees(index, self.log.entries[index]) for index in between)
        assert end <= self.put
        if found:
            assert end > found[-1]
            subscriber.last_id += 1
            subscriber.marks[subscriber.last_id] = (subscriber.next, end)
        subscriber.next = end

    def ack(self, client_id: int, batch_id: int) -> None:
        subscriber = self.subscribers[client_id]
        assert batch_id == min(subscriber.marks)
        subscriber.acked = subscriber.marks.pop(batch_id)[1]

    def rollback(self, client_id: int, batch_id: int | None) -> None:
        subscriber = self.subscribers[client_id]
        if batch_id is None:
            batch_id = min(subscriber.marks, default=None)
        if batch_id is None:
            return
        subscriber.next = subscriber.marks[batch_id][0]
        subscriber.marks = {k: v for k, v in subscriber.marks.items() if k < batch_id}
