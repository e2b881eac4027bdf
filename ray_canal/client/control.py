"""subscriber: what an operator does to one subscriber of a destination, whether it runs or not."""

from __future__ import annotations

from datetime import datetime

from ray_canal.actors import registry
from ray_canal.client.api import call_once
from ray_canal.client.snapshots import SnapshotControl
from ray_canal.client.subscribers import Config, is_running, namespace_of
from ray_canal.config import CanalConfig, load
from ray_canal.destination.api import DestinationApi
from ray_canal.errors import ConfigError
from ray_canal.meta.operations import Argument, operate_kept, refuse_action
from ray_canal.model.position import EntryPosition
from ray_canal.model.reports import SubscriberReport
from ray_canal.model.subscription import StartWish, refuse_client_id


def subscriber(
    destination: str,
    client_id: int,
    *,
    config: Config | None = None,
    namespace: str = registry.NAMESPACE,
    offline: bool = False,
) -> SubscriberControl:
    """Return a handle to a known subscriber, for whoever operates the destination.

    It works while the destination starts or has failed; with `config` also while it does not run;
    `offline` says that it does not where its cluster cannot be asked.
    Each call is durable when it returns, and raises NotSubscribed: there is no such subscriber;
    InstanceNotFound, ConfigError, MetaUnavailable.
    """
    refuse_client_id(client_id)
    return SubscriberControl(destination, client_id, config, namespace, offline)


class SubscriberControl:
    """One subscriber, for its operator. Calls return its record, as `subscribers` shows it."""

    def __init__(
        self,
        destination: str,
        client_id: int,
        config: Config | None,
        namespace: str,
        offline: bool,
    ) -> None:
        self._destination = destination
        self._client_id = client_id
        self._config: CanalConfig | None = None if config is None else load(config)
        self._namespace = namespace
        self._offline = offline

    def show(self) -> SubscriberReport:
        """Return the subscriber's record."""
        return self._operate("show")

    def pause(self) -> SubscriberReport:
        """Give it nothing more until `resume`. What it was handed it may still ack. The log does
        not wait for it: while paused its policy is `detach`."""
        return self._operate("pause")

    def resume(self) -> SubscriberReport:
        """Let it go on at its cursor; from the log, or by a replication stream of its own."""
        return self._operate("resume")

    def seek(self, to: StartWish) -> SubscriberReport:
        """Move its cursor: `head` or `tail` of the destination's log, a place in the binlog (also
        as FILE:POSITION), a GTID set of what was consumed, a time. What it was handed is void.

        Raises PositionPurged, PositionNotFound: the server's log does not have it; SourceError.
        """
        return self._operate("seek", _text(to))

    def expire(self) -> SubscriberReport:
        """Let the log not wait for it any more. Its cursor stays: when it subscribes again, it
        catches up from the server, as far as that still has the binlog."""
        return self._operate("expire")

    def label(self, text: str) -> SubscriberReport:
        """Give it a name for people; an empty text removes it."""
        return self._operate("label", text)

    def copy(self, new_client_id: int) -> SubscriberReport:
        """Make another subscriber with its cursor, filter and terms; returns that one's record.
        Raises ConfigError: there is one with this id."""
        return self._operate("copy", new_client_id)

    def rename(self, new_client_id: int) -> SubscriberReport:
        """Give it another client id. Who calls by the old one gets NotSubscribed. If it fails
        midway, there may be both: remove one."""
        return self._operate("rename", new_client_id)

    @property
    def snapshot(self) -> SnapshotControl:
        """The rows that tables hold, for its log, of a destination that runs."""
        namespace = namespace_of(self._config, self._namespace)
        return SnapshotControl(self._destination, self._client_id, namespace)

    def remove(self) -> None:
        """Forget it and its cursor, whoever has it."""
        self._call("remove")

    def _operate(self, action: str, argument: Argument = None) -> SubscriberReport:
        found = self._call(action, argument)
        assert found is not None  # only a removed one has no record
        return found

    def _call(self, action: str, argument: Argument = None) -> SubscriberReport | None:
        refuse_action(action, argument)
        name, client_id, config = self._destination, self._client_id, self._config
        offline = self._offline or action == "show"
        if config is not None and not is_running(name, config, offline=offline):
            return operate_kept(config, name, client_id, action, argument)
        namespace = namespace_of(config, self._namespace)
        operate = DestinationApi.operate
        return call_once(name, namespace, operate, client_id, action, argument)


def _text(to: StartWish) -> str:
    """Return a place as text. Raises ConfigError: a time without its zone."""
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise ConfigError(f"time {to.isoformat()} has no time zone; give it one")
        return to.isoformat()
    if isinstance(to, EntryPosition):
        return f"{to.journal_name}:{to.position}"
    return to
