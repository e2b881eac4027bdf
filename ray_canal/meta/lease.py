"""The lease of a deployment: of several heads with the same configuration, one is active.

It is kept where the cursors are, as the records of a destination that no real one is called:
"@NAMESPACE". The active head writes a beat again and again under its epoch; who waits sees by its
own clock that the beat stands still, and takes a newer epoch. So clocks need not agree, and a head
that slept is refused when it wakes. The lease decides who begins; that two never deliver or
acknowledge the same destination is the work of each destination's own epoch.

Next to the beat are the destinations that should run, as they were applied and not stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ray_canal.errors import EpochLost, Fenced, MetaUnavailable
from ray_canal.meta.backend import MetaBackend

_BEAT = 0
"""Client id of the beat; destinations that should run have those from 1 on."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The active head: its owner id, and what people call it. `released`: it has stopped."""

    owner: str
    called: str = ""
    released: bool = False
    beats: int = 0


class Lease:
    """One head's side of it. `owner`: an id that only this head has, also after a restart;
    `lasts_s`: a beat that stands still for so long is over; `clock`: monotonic seconds. Not for
    several threads at a time. All methods raise MetaUnavailable."""

    def __init__(
        self,
        backend: MetaBackend,
        namespace: str,
        owner: str,
        called: str = "",
        lasts_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._name = f"@{namespace}"
        self._me = Holder(owner, called)
        self._lasts_s = lasts_s
        self._clock = clock
        self._epoch = 0
        self._beats = 0
        self._replaced = False
        self._seen: tuple[int, str | None] | None = None
        self._since = 0.0
        self.holder: Holder | None = None

    @property
    def held(self) -> bool:
        """Return whether this head was active at its last turn."""
        return self._epoch != 0

    def turn(self) -> bool:
        """Beat; or, while another one is active, look whether it still beats, and take over if it
        does not. Return whether this head is active now."""
        try:
            return (self.held and self._beat()) or self._look()
        except MetaUnavailable:
            self._seen = None  # its holder could not beat either
            raise

    def _look(self) -> bool:
        newest = self._backend.epoch(self._name)
        record = self._backend.load(self._name).get(_BEAT)
        if (newest, record) != self._seen:
            self._seen, self._since = (newest, record), self._clock()
        self.holder = None if record is None else Holder(**json.loads(record))
        mine = self.holder is not None and self.holder.owner == self._me.owner
        free = self.holder is None or self.holder.released or (mine and not self._replaced)
        if not free and self._clock() - self._since < self._lasts_s:
            return False
        try:
            self._epoch = self._backend.acquire(self._name, self._me.owner, newest)
        except Fenced:  # another one was faster
            return False
        self._replaced = False
        return self._beat()

    def _beat(self, *, released: bool = False) -> bool:
        self._beats += 1
        self.holder = Holder(self._me.owner, self._me.called, released, self._beats)
        record = json.dumps({name: getattr(self.holder, name) for name in Holder.__slots__})
        try:
            self._backend.save(self._name, self._epoch, _BEAT, record)
        except (Fenced, EpochLost):
            self._epoch, self._replaced = 0, True
            return False
        return True

    def release(self) -> None:
        """Let another head begin at once; nothing is to be done if this one is not active."""
        if self.held:
            self._beat(released=True)
            self._epoch = 0

    def wanted(self) -> dict[str, str]:
        """Return the destinations that should run, with their configurations as they were kept."""
        return {name: text for name, (_, text) in self._records().items()}

    def keep(self, configurations: Mapping[str, str]) -> None:
        """Keep what should run; what is not among it should not. Raises Fenced: this head is not
        active."""
        known = self._records()
        for name, (number, _) in known.items():
            if name not in configurations:
                self._backend.remove(self._name, self._epoch, number)
        free = (n for n in range(1, 1 + len(known) + len(configurations)))
        taken = {number for name, (number, _) in known.items() if name in configurations}
        numbers = (n for n in free if n not in taken)
        for name, text in configurations.items():
            number, before = known.get(name, (0, ""))
            if text != before:
                record = json.dumps({"destination": name, "instance": text})
                self._backend.save(self._name, self._epoch, number or next(numbers), record)

    def _records(self) -> dict[str, tuple[int, str]]:
        found = {}
        for number, record in self._backend.load(self._name).items():
            if number != _BEAT:
                tree = json.loads(record)
                found[str(tree["destination"])] = number, str(tree["instance"])
        return found

    def close(self) -> None:
        """Release the backend."""
        self._backend.close()
