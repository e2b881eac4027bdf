"""Every error of ray_canal, as one tree.

    CanalError
    ├── ConfigError                  a setting is wrong; names the nearest valid key
    │   ├── MetaDamaged              the file of cursors (or schemas) is damaged, or another one
    │   └── NoClusterHere            no Ray cluster was named, and none runs on this machine
    ├── SourceError                  the MySQL server or the binlog file's fault
    │   ├── ConnectionLost           (retryable) the connection ended or fell silent
    │   ├── AuthenticationFailed     wrong user, password, or authentication plugin
    │   ├── PrivilegeMissing         a grant is missing; says which, and how to give it
    │   ├── PositionNotFound         no such binlog file, or nothing that fits begins there
    │   ├── PositionPurged           the server has purged what we need; `lost` says what
    │   ├── LogRenamed               (retryable) the log goes on in files of another base name
    │   ├── TransactionsMissing      (retryable) a server lacks transactions that we delivered
    │   └── ServerSettingRefused     a server variable that we cannot work with
    ├── DecodeError                  the bytes' fault; carries file and offset
    │   ├── CorruptEvent             checksum, length, or structure is wrong
    │   ├── UnsupportedEvent         an event or column type that is not decoded
    │   ├── IncidentEvent            the server says that its binlog lacks events here
    │   └── TableMetaMismatch        the table's schema does not fit its TABLE_MAP
    │       └── QuarantineFull       and there is no room to keep its events aside
    ├── CorruptPacket                bytes that are no packet of Canal's client protocol
    ├── ConsumerError                the caller's fault
    │   ├── NotSubscribed            get or ack before subscribe
    │   ├── BatchNotFirst            ack out of order (Canal's text)
    │   ├── BatchNotFound            ack of an unknown batch (Canal's text)
    │   ├── BatchesUnacked           get() while batches of get_without_ack() are open
    │   ├── TransactionTooLarge      a whole transaction is larger than the subscriber takes
    │   ├── SubscriberReplaced       somebody else has subscribed under this client id
    │   └── AccessDenied             the user of a connection has no right to do this
    └── InstanceError                the state of a destination (Canal: instance)
        ├── InstanceNotFound         no such destination
        ├── InstanceNotRunning       (retryable) the destination is stopped or starting
        │   └── MetaUnavailable      (retryable) where cursors live cannot be reached
        ├── InstanceRestarted        (retryable) it restarted: earlier batch ids are void
        │   └── EpochLost            (retryable) where cursors live, our epoch was forgotten
        ├── CursorNotInLog           (retryable) the log begins behind a subscriber's cursor
        └── Fenced                   an epoch newer than ours owns the destination

Each error answers "whose fault?" by its class and "may I retry?" by `retryable`. A constructor
takes one positional message, because Ray pickles exceptions by their positional arguments; what
else an error knows (destination, journal name, position) travels in attributes set by `at()`.
Secrets are never put into a message.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, TypeVar

Self = TypeVar("Self", bound="CanalError")

MORE_OPEN_FILES = (
    "this process may open no more files: raise its limit (`ulimit -n`, LimitNOFILE of systemd) "
    "and start it again"
)


def os_error_text(error: OSError) -> str:
    """Return what the system said, of which file, and what to do where no more may be opened."""
    text = error.strerror or str(error)
    where = f": {error.filename}" if error.filename else ""
    return f"{text}{where}" + (f"; {MORE_OPEN_FILES}" if error.errno == errno.EMFILE else "")


class CanalError(Exception):
    """Base of all errors raised by ray_canal."""

    retryable = False

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.destination: str | None = None
        self.journal_name: str | None = None
        self.position: int | None = None

    def at(
        self: Self,
        journal_name: str | None = None,
        position: int | None = None,
        destination: str | None = None,
    ) -> Self:
        """Say where it happened: binlog file, byte offset in it, destination. Returns itself."""
        self.journal_name = journal_name if journal_name is not None else self.journal_name
        self.position = position if position is not None else self.position
        self.destination = destination if destination is not None else self.destination
        return self

    def __str__(self) -> str:
        message = super().__str__()
        place = []
        if self.destination:
            place.append(f"destination {self.destination}")
        if self.journal_name is not None:
            offset = "" if self.position is None else f" offset {self.position}"
            place.append(f"{self.journal_name}{offset}")
        return f"{message} [{', '.join(place)}]" if place else message

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self.args, self.__dict__)


class ConfigError(CanalError):
    """A setting is wrong."""


class MetaDamaged(ConfigError):
    """The file where cursors or schemas live is damaged, or was replaced or removed."""


class NoClusterHere(ConfigError):
    """No Ray cluster was named, and none runs on this machine."""


class SourceError(CanalError):
    """The source (server, file, network) is at fault.

    `other_log`: the server's log is not the one that a cursor belongs to, although the server is:
    it was reset, restored from a copy, or replaced (source.on_reset).
    """

    other_log = False


class ConnectionLost(SourceError):
    """The connection to the server ended or fell silent; a reconnect may help."""

    retryable = True


class AuthenticationFailed(SourceError):
    """The server refused the user, the password or the authentication plugin."""


class PrivilegeMissing(SourceError):
    """The user lacks a grant."""


class PositionNotFound(SourceError):
    """No such binlog file, a position past its end, one where another log goes on, or a time in the
    future."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """The range that a purge took away: from where we wanted to read, to where the log begins (or
    where reading goes on). Times are seconds, 0: not known. `gtids`: the transactions, where there
    are GTIDs (MariaDB: "after X, up to Y")."""

    start: str
    end: str
    gtids: str = ""
    start_time: int = 0
    end_time: int = 0


class PositionPurged(SourceError):
    """The server has purged the binlog that holds the position."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.lost: LostRange | None = None


class TransactionsMissing(SourceError):
    """The server does not have transactions that were delivered already. It may get them yet."""

    retryable = True


class LogRenamed(SourceError):
    """The log goes on in files of another base name (log_bin): when all before is acked, reading
    goes on there, in a new timeline."""

    retryable = True


UNUSABLE_CURSOR = (PositionPurged, PositionNotFound, TransactionsMissing)
"""Errors by which one cursor may fail while others go on."""


class ServerSettingRefused(SourceError):
    """A server variable has a value that change data capture cannot work with."""


class DecodeError(CanalError):
    """Bytes that cannot be decoded; `raw` keeps the event (may be empty)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.raw: bytes = b""


class CorruptEvent(DecodeError):
    """A checksum, a length or a structure is wrong."""


class UnsupportedEvent(DecodeError):
    """An event type or column type that ray_canal does not decode."""


class IncidentEvent(DecodeError):
    """The source itself says (INCIDENT event) that its binlog lacks events here."""


class TableMetaMismatch(DecodeError):
    """The known schema of a table does not fit its TABLE_MAP event, or there is no schema."""


class QuarantineFull(TableMetaMismatch):
    """A table's schema is not known, and what is kept aside has reached its limit."""


class CorruptPacket(CanalError):
    """Bytes that are no packet of Canal's client protocol, or one beyond its limits."""


class ConsumerError(CanalError):
    """The caller broke the get/ack contract."""


class NotSubscribed(ConsumerError):
    """get or ack before subscribe."""


class BatchNotFirst(ConsumerError):
    """ack of a batch that is not the smallest outstanding one."""


class BatchNotFound(ConsumerError):
    """ack or rollback of a batch that is not outstanding."""


class BatchesUnacked(ConsumerError):
    """get() while batches of get_without_ack() are still outstanding."""


class TransactionTooLarge(ConsumerError):
    """A whole transaction that the log has no place for, in memory or on disk."""


class SubscriberReplaced(ConsumerError):
    """Somebody else has subscribed under this client id since; this client must stop."""


class AccessDenied(ConsumerError):
    """The user that a connection has logged in as may not do this."""


class InstanceError(CanalError):
    """The destination is not in the state that the call needs."""


class InstanceNotFound(InstanceError):
    """No such destination."""


class InstanceNotRunning(InstanceError):
    """The destination is stopped, starting, or has failed, or Ray's head does not answer (the
    message says which)."""

    retryable = True


class InstanceRestarted(InstanceError):
    """The destination restarted; batches handed out before are void and will come again."""

    retryable = True


class CursorNotInLog(InstanceError):
    """The log does not have all that lies behind a subscriber's cursor; a catch-up does."""

    retryable = True


class EpochLost(InstanceRestarted):
    """The cursors' backend has lost the owner's epoch, and perhaps some acks with it."""


class MetaUnavailable(InstanceNotRunning):
    """The cursors' backend cannot be reached; the same call may be made again."""


class Fenced(InstanceError):
    """A newer epoch owns the destination; this owner must stop."""
