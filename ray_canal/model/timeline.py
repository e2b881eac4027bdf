"""The timeline: what makes row ids comparable beyond one server's log.

A row's id is (timeline, number of its file, position, row). File names and positions are one log's
own; a new timeline begins wherever it is not certain that the log is still the same: another
server, a server that was reset or restored, a cursor that was found again elsewhere. So ids compare
as delivery order, always.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ray_canal.errors import ConfigError
from ray_canal.model.position import SourceIdentity, journal_key


class LogFile(NamedTuple):
    """A file of a log, by its name and the second in which the server created it."""

    journal_name: str = ""
    created_s: int = 0

    def is_behind(self, other: LogFile) -> bool:
        """Return whether it comes later in a log than the other one; files of another base name
        do."""
        number, other_number = (journal_key(each.journal_name)[1] for each in (self, other))
        return not self.has_base_of(other) or number > other_number

    def cannot_lead_to(self, other: LogFile) -> bool:
        """Return whether no log has the other file, too, at the same place or later."""
        if not self.journal_name:
            return False
        is_another = self.journal_name == other.journal_name and self != other
        return is_another or self.is_behind(other)

    def has_base_of(self, other: LogFile) -> bool:
        """Return whether their names differ by no more than the number."""
        return journal_key(self.journal_name)[0] == journal_key(other.journal_name)[0]


NO_FILE = LogFile()


@dataclass(frozen=True, slots=True)
class Timeline:
    """A destination's timeline, and the log that it is of. `newest`: the last file of which
    something was handed out; no name: not known."""

    number: int
    identity: SourceIdentity
    newest: LogFile = NO_FILE

    def to_json(self) -> str:
        """Return it as text; `from_json` reads it."""
        identity = {"address": self.identity.address, "server_uuid": self.identity.server_uuid}
        tree = {"number": self.number, "identity": identity, "newest": list(self.newest)}
        return json.dumps(tree, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Timeline:
        """Raises ConfigError: the record is not one of ours."""
        try:
            tree = json.loads(text)
            number, identity = int(tree["number"]), SourceIdentity(**tree["identity"])
            return cls(number, identity, LogFile(*tree.get("newest", ())))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"it cannot be read ({error}): {text!r}") from None


def timeline_in(
    known: Timeline | None, identity: SourceIdentity, same_log: bool, now_s: int
) -> Timeline:
    """The timeline of a log that was opened at `now_s`: the known one if that is of this log, else
    a higher one. `same_log`: see Start.

    A new one is the second in which it begins: so it is higher, too, where the record of those
    before was lost.
    """
    if known is None:
        return Timeline(now_s, identity)
    if same_log and known.identity.server_uuid == identity.server_uuid:
        return known
    return Timeline(max(known.number + 1, now_s), identity)


def row_id(row: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """A row's id, from its columns `timeline`, `journal_name`, `position` and `row`.

    Ids compare as delivery order: whoever keeps the highest id that it took, and skips what is not
    above it, takes each delivered row once."""
    number = journal_key(row["journal_name"])[1]
    return row["timeline"], number, row["position"], row["row"]
