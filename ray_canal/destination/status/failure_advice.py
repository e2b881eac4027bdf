"""Advice for a destination's failure, by the kind of its error."""

from __future__ import annotations

_ADVICE = (
    # errors, stage, what to do
    ("Fenced", "cursors", "another deployment owns this destination: stop that one, or this one "
     "with `ray-canal stop`; to take it back, stop it here and start it again"),
    ("MetaUnavailable", "cursors", "reach the server of `[meta]`; it goes on by itself then"),
    ("MetaDamaged", "cursors", "put back a copy of the file of cursors (docs/how-to/cursors.md)"),
    ("EpochLost", "cursors", "nothing: it takes a new epoch and goes on by itself"),
    ("ConnectionLost", "source", "make the server reachable; it connects again by itself"),
    ("AuthenticationFailed", "source", "correct `source.username` and `source.password`, then "
     "`ray-canal start CONFIG`; `ray-canal check CONFIG` tests them"),
    ("PrivilegeMissing", "source", "`ray-canal check CONFIG` prints the GRANT to run"),
    ("ServerSettingRefused", "source", "`ray-canal check CONFIG` prints the setting to change"),
    ("PositionPurged", "source", "see whose cursor it is with `ray-canal subscribers`, then "
     "move it (`ray-canal subscriber NAME CLIENT_ID seek`), remove it, or set "
     "`source.on_purged`"),
    ("PositionNotFound", "source", "see whose cursor it is with `ray-canal subscribers`, then "
     "move it (`ray-canal subscriber NAME CLIENT_ID seek`), remove it, or set "
     "`source.on_reset`"),
    ("TransactionsMissing", "source", "wait until the server has these transactions, or set "
     "`source.on_reset` if its log was reset"),
    ("LogRenamed", "source", "nothing: it goes on in the new files by itself"),
    ("IncidentEvent", "decode", "the server lost events: compare the tables, then pass over the "
     "event with `source.skip_events`"),
    ("QuarantineFull", "decode", "`ray-canal redrive CONFIG NAME --schema FILE` empties the "
     "quarantine"),
    ("TableMetaMismatch", "decode", "give the table's CREATE TABLE with `ray-canal redrive`, or "
     "see `tsdb.on_ddl_error`"),
    ("CorruptEvent", "decode", "`ray-canal verify` reads the same bytes with another decoder; "
     "`source.skip_events` passes over one event"),
    ("UnsupportedEvent", "decode", "`source.skip_events` passes over one event"),
    ("ConfigError", "configuration", "correct the setting and run `ray-canal start CONFIG`"),
)  # fmt: skip

_RECOVER_BY_THEMSELVES = ("ConnectionLost", "MetaUnavailable", "EpochLost", "LogRenamed")


def advice_on(error: str) -> tuple[str, str]:
    """Return the stage that an error (`Kind: message`) is about, and what to do."""
    kind = error.partition(":")[0]
    known = ((stage, advice) for name, stage, advice in _ADVICE if name == kind)
    return next(known, ("process", "read the log of the destination's process (`ray logs`)"))


def recovers(error: str) -> bool:
    """Return whether the destination goes on by itself once the cause has passed."""
    return error.partition(":")[0] in _RECOVER_BY_THEMSELVES
