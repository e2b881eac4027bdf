"""The MetaManager: subscribers and their cursors, written under the owner's epoch."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.memory import MemoryBackend
from ray_canal.meta.sqlite import SqliteBackend
from ray_canal.protocol.position import EntryPosition, LogPosition, SourceIdentity


@dataclass(frozen=True, slots=True)
class SubscriberMeta:
    """What is durable of a subscriber: its id, its filter, the cursor of what it has acked, and
    what else it asked for (`store.subscriber.Terms`; policy "": the destination's)."""

    client_id: int
    filter: str
    cursor: LogPosition | None
    policy: str = ""
    transactions: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> SubscriberMeta:
        """Raises ConfigError: the record is not one of ours."""
        try:
            tree = json.loads(text)
            cursor = tree["cursor"]
            return cls(
                int(tree["client_id"]),
                str(tree["filter"]),
                None
                if cursor is None
                else LogPosition(
                    SourceIdentity(**cursor["identity"]), EntryPosition(**cursor["position"])
                ),
                str(tree.get("policy", "")),
                bool(tree.get("transactions", False)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"a subscriber's record cannot be read ({error}): {text!r}") from None


class MetaManager:
    """Subscribers of destinations. Writes are durable when they return, or raise Fenced."""

    def __init__(self, backend: MetaBackend) -> None:
        self._backend = backend

    def acquire(self, destination: str) -> int:
        """Own the destination: a new epoch, which fences every earlier owner."""
        return self._backend.acquire(destination)

    def load(self, destination: str) -> dict[int, SubscriberMeta]:
        """Subscribers by client id. Raises ConfigError: a record is damaged."""
        found = self._backend.load(destination)
        return {client_id: SubscriberMeta.from_json(text) for client_id, text in found.items()}

    def save(self, destination: str, epoch: int, subscriber: SubscriberMeta) -> None:
        """Raises Fenced."""
        self._backend.save(destination, epoch, subscriber.client_id, subscriber.to_json())

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        """Raises Fenced."""
        self._backend.remove(destination, epoch, client_id)

    def close(self) -> None:
        self._backend.close()


def open_backend(config: MetaConfig) -> MetaBackend:
    """The backend that the configuration names. Raises ConfigError."""
    return MemoryBackend() if config.backend == "memory" else SqliteBackend(config.path)
