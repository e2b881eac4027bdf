"""Why nothing comes: a destination's status read as a person on call would read it.

Pure functions over the plain values that `status` and `subscribers` return. The rules are tried in
the order of the pipeline, from the process to the subscriber: the first that holds is the answer,
because what comes after a stage that stands cannot move either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ray_canal.destination.status.bottleneck import bottleneck
from ray_canal.destination.status.failure_advice import advice_on, recovers
from ray_canal.model.metrics import value_at
from ray_canal.model.quantities import duration_text, rate_text, size_text

Severity = Literal["ok", "wait", "problem"]

_SILENT_S = 60.0
"""A subscriber with something to read that does not call for so long is noticed."""
_SLOW_START_S = 120.0
_NAMED_MAX = 5
_PURGE_SOON_S = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer to "why is nothing coming?". `severity`: "ok" nothing is wrong, "wait" it passes
    by itself, "problem" somebody has to act. `stage`: process, source, cursors, decode, log, sink
    of the pipeline, or `subscriber N`. `evidence`: the figures that say so. `advice`: what to do.
    """

    destination: str
    severity: Severity
    stage: str
    reason: str
    evidence: tuple[str, ...] = ()
    advice: str = ""

    def __str__(self) -> str:
        parts = [f"{self.destination}: {self.reason} (stage: {self.stage})."]
        if self.evidence:
            parts.append(f"Evidence: {'; '.join(self.evidence)}.")
        if self.advice:
            parts.append(f"What to do: {self.advice}.")
        return " ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for programs."""
        return {**asdict(self), "evidence": list(self.evidence)}


def diagnose(
    status: Mapping[str, Any],
    subscribers: Sequence[Mapping[str, Any]] | None = (),
    client_id: int | None = None,
) -> Diagnosis:
    """Return why nothing (more) comes from a destination, to one subscriber if `client_id` names
    it. `status`: as `status()` has it for this destination, `subscribers`: as `subscribers()`;
    None: they are not known now."""
    name = str(status.get("destination", ""))
    found = [one for one in subscribers or () if client_id in (None, one["client_id"])]
    if subscribers is not None and client_id is not None and not found:
        known = ", ".join(str(one["client_id"]) for one in subscribers) or "none"
        return Diagnosis(
            name, "problem", f"subscriber {client_id}", f"there is no subscriber {client_id}",
            (f"subscribers: {known}",),
            "subscribe with this client id, or name another one",
        )  # fmt: skip
    look = _Look(name, status, found, client_id is not None, subscribers is not None)
    # What the log has for a subscriber does not wait for what keeps the log from growing.
    first = (_one_subscriber,) if look.asked else ()
    rules: tuple[Callable[[_Look], Diagnosis | None], ...] = (
        _process, _failed, _not_running, _source, *first, _records, _disk, _full_log,
        _one_subscriber, _quarantine, _purge, _behind,
    )  # fmt: skip
    answers = (rule(look) for rule in rules)
    return next((answer for answer in answers if answer is not None), _at_the_end(look))


@dataclass(frozen=True, slots=True)
class _Look:
    """A status as the rules look at it. `asked`: one subscriber was asked about, and is the only
    one. `is_whole`: there is no subscriber but these."""

    name: str
    status: Mapping[str, Any]
    subscribers: Sequence[Mapping[str, Any]]
    asked: bool
    is_whole: bool

    def __call__(self, path: str, default: Any = None) -> Any:
        return value_at(self.status, path, default)

    def says(
        self, severity: Severity, stage: str, reason: str, evidence: Sequence[str], advice: str
    ) -> Diagnosis:
        return Diagnosis(self.name, severity, stage, reason, tuple(evidence), advice)


def _process(look: _Look) -> Diagnosis | None:
    state = look("state")
    if state == "restarting":
        return look.says(
            "wait", "process", "its process is being started again", [look("error") or ""],
            "wait some seconds; if it stays so, `ray status` says whether the cluster has room and "
            "`ray logs` why the process ended",
        )  # fmt: skip
    if state == "stopped":
        return look.says(
            "problem", "process", "it was stopped", [], "`ray-canal start CONFIG` starts it"
        )
    return None


def _failed(look: _Look) -> Diagnosis | None:
    if look("state") != "failed":
        return None
    error = str(look("error") or "no reason is known")
    stage, advice = advice_on(error)
    evidence = [error, *_counted(look("errors", 0), "failure", "since its process started")]
    severity: Severity = "wait" if recovers(error) else "problem"
    return look.says(severity, stage, "it has failed", evidence, advice)


def _not_running(look: _Look) -> Diagnosis | None:
    state = look("state")
    if state == "idle":
        return look.says(
            "ok", "source", "it is idle because nobody has subscribed", [],
            'subscribe, or set `runs = "always"` to fill the log for nobody',
        )  # fmt: skip
    fails = any(one.get("failure") for one in look.subscribers)
    if state == "finished" and not fails and not _unread(look):
        return look.says(
            "ok", "source", "all of its binlog files were read", _where(look), "give it more files"
        )
    if state != "starting":
        return None
    for_s = float(look("uptime_s", 0.0))
    slow = for_s > _SLOW_START_S and not look("generations", 0)
    return look.says(
        "problem" if slow else "wait", "source", "it is starting: it looks for its place at the "
        "source", [f"its process is {duration_text(for_s)} old", *_source_error(look)],
        "`ray-canal check CONFIG` tests the server; a search by time or GTID reads binlog files"
        if slow else "wait some seconds",
    )  # fmt: skip


def _source(look: _Look) -> Diagnosis | None:
    if look("state") != "running" or look("connected"):
        return None
    lag_s = look("lag_seconds")
    evidence = [f"connected: no, server {look('address') or look('source')}", *_source_error(look)]
    if lag_s is not None:
        evidence.append(f"its rows are {duration_text(lag_s)} old")
    return look.says(
        "problem", "source", "the connection to the server does not stand", evidence,
        "make the server reachable; it connects again by itself. `ray-canal check CONFIG` tests "
        "address, user and grants",
    )  # fmt: skip


def _records(look: _Look) -> Diagnosis | None:
    error = look("records_error")
    if not error or look("state") != "running":
        return None
    return look.says(
        "problem", "cursors", "the log waits for a record to be written", [str(error)],
        "fix what keeps the server or the disk of the cursors from it; it is tried again all the "
        "time, and nothing is read twice",
    )  # fmt: skip


def _disk(look: _Look) -> Diagnosis | None:
    error, for_s = look("store.disk_error"), float(look("store.disk_failing_s", 0.0))
    if not error or not look("store.full_s", 0.0):
        return None
    return look.says(
        "problem", "log", "the log is full and cannot go to disk",
        [f"disk: {error}", f"for {duration_text(for_s)}", *_holders(look)],
        "make room at `store.spill_path`, or let the slowest subscriber read and ack, or remove "
        "it; the rest happens by itself",
    )  # fmt: skip


def _full_log(look: _Look) -> Diagnosis | None:
    full_s, held_by = float(look("store.full_s", 0.0)), look("store.held_by", [])
    if not full_s or look("state") != "running":
        return None
    places = look("store.subscribers", {})
    if not places:
        return look.says(
            "wait", "log", "the log is full, and nobody has subscribed, so nothing more is read",
            [f"full for {duration_text(full_s)}", *_where(look)],
            "subscribe with `canal.connect`",
        )  # fmt: skip
    first = held_by[0] if held_by else "CLIENT_ID"
    return look.says(
        "problem" if full_s > _SILENT_S else "wait", "log",
        "the log is full and waits for a subscriber, so nothing more is read",
        [f"full for {duration_text(full_s)}", *_holders(look)],
        f"let client {first} read and ack; or remove it (`ray-canal unsubscribe {look.name} "
        f"{first}`), or let it not hold up the others (policy `spill` or `detach`)",
    )  # fmt: skip


def _holders(look: _Look) -> list[str]:
    """Return who holds up the log."""
    places = look("store.subscribers", {})
    held_by = look("store.held_by", [])
    return [f"client {each}: {_call_text(places.get(str(each), {}))}" for each in held_by]


def _one_subscriber(look: _Look) -> Diagnosis | None:
    for one in look.subscribers:
        found = _of_subscriber(look, one)
        if found is not None:
            others = [
                str(each["client_id"])
                for each in look.subscribers
                if each.get("failure") and each is not one
            ]
            also = (f"nor can {', '.join(others)}",) if others and one.get("failure") else ()
            return replace(found, evidence=(*found.evidence, *also))
    if look.is_whole and not look.subscribers and look("state") == "running":
        return look.says(
            "ok", "subscribers", "nobody has subscribed", _where(look),
            "subscribe with `canal.connect` or `ray-canal tail`",
        )  # fmt: skip
    return None


def _of_subscriber(look: _Look, one: Mapping[str, Any]) -> Diagnosis | None:
    """Find what keeps one subscriber from its changes. Where nobody asked for it, only what
    somebody has to know."""
    client_id = one["client_id"]
    stage = f"subscriber {client_id}"
    at = f"cursor {one.get('cursor') or 'none'}"
    if one.get("failure"):
        return look.says(
            "problem", stage, f"client {client_id} cannot be served", [str(one["failure"]), at],
            f"move it (`ray-canal subscriber {look.name} {client_id} seek earliest`), or remove it "
            f"(`ray-canal unsubscribe {look.name} {client_id}`)",
        )  # fmt: skip
    if not look.asked:
        return None
    if one.get("paused_at"):
        return look.says(
            "problem", stage, f"client {client_id} is paused", [at],
            f"`ray-canal subscriber {look.name} {client_id} resume`",
        )  # fmt: skip
    if one.get("detached"):
        return look.says(
            "wait", stage, f"client {client_id} catches up by its own replication stream",
            [at, "the log no longer has what it reads"],
            "let it read and ack; it comes back to the log by itself",
        )  # fmt: skip
    if one.get("expired_at"):
        return look.says(
            "problem", stage, f"client {client_id} has expired", [at],
            "let it subscribe again: it catches up from its cursor",
        )  # fmt: skip
    behind = one.get("entries_behind")
    if not behind:
        return None
    unacked, call_s = one.get("unacked_batches") or 0, one.get("last_call_s")
    silent = call_s is None or call_s > _SILENT_S
    size = size_text(one.get("bytes_behind") or 0)
    evidence = [f"{behind:,} entries ({size}) wait for it", at, _call_text(one)]
    evidence += _counted(unacked, "batch", "handed out and not acked")
    if silent and unacked:
        return look.says(
            "problem", stage, f"client {client_id} has batches and does not ack them", evidence,
            "look at that program: it is busy with a batch, hangs, or is gone",
        )  # fmt: skip
    if silent:
        return look.says(
            "problem", stage, f"client {client_id} does not ask for its changes", evidence,
            "start that program, or look why it hangs",
        )  # fmt: skip
    return look.says(
        "ok", stage, f"client {client_id} is being served", evidence,
        f"if it sees no rows: its filter {one.get('filter')!r} admits none of them",
    )  # fmt: skip


def _quarantine(look: _Look) -> Diagnosis | None:
    tables = look("quarantined", [])
    if not tables:
        return None
    names = ", ".join(str(table) for table in list(tables)[:5])
    return look.says(
        "problem", "decode", "changes of some tables are kept in quarantine", [f"tables: {names}"],
        "`ray-canal redrive CONFIG NAME --schema FILE` gives them out once their schema is known",
    )  # fmt: skip


def _purge(look: _Look) -> Diagnosis | None:
    warning, seconds = look("purge.warning", ""), look("purge.seconds")
    soon = seconds is not None and seconds < _PURGE_SOON_S
    if not warning and not soon:
        return None
    figure = [] if seconds is None else [f"purge in {duration_text(max(seconds, 0.0))}"]
    return look.says(
        "problem", "source", "the server is about to purge what a subscriber needs",
        [*([warning] if warning else []), *figure],
        "let the slowest subscriber go faster, remove it, or raise binlog_expire_logs_seconds",
    )  # fmt: skip


def _behind(look: _Look) -> Diagnosis | None:
    """Find why it reads and has not reached the end of the server's log."""
    lag_bytes = look("lag_bytes")
    if look("state") != "running" or not lag_bytes:
        return None
    rate, limit = float(look("bytes_per_second", 0.0)), bottleneck(look.status)
    evidence = [f"{size_text(lag_bytes)} to read", f"{rate_text(look('rows_per_second', 0.0))} "
                f"rows/s, {size_text(rate)}/s", *_where(look)]  # fmt: skip
    if limit is not None and limit.percent:
        evidence.append(f"{limit.stage} is busy {limit.percent:.0f} %")
    if rate <= 0:
        return look.says(
            "wait", "source", "there is something to read, and nothing has come in ten seconds",
            evidence, "a large transaction comes when it is complete; if it stays so, look at the "
            "network and at the server's `SHOW PROCESSLIST`",
        )  # fmt: skip
    stage = "source" if limit is None else limit.stage
    return look.says(
        "wait", stage, f"it is catching up, and is there in about {duration_text(lag_bytes / rate)}"
        " if nothing more is written", evidence,
        "nothing; to be faster see docs/how-to/tuning.md",
    )  # fmt: skip


def _at_the_end(look: _Look) -> Diagnosis:
    """Nothing is wrong here."""
    waiting = [text for one in look.subscribers if (text := _waits_for_more(one))]
    if waiting and not look.asked:
        return look.says(
            "ok", "subscribers", "all that the server has written was read, and not all of it was "
            "delivered", [*waiting[:_NAMED_MAX], *_where(look)],
            f"`ray-canal explain {look.name} --client-id CLIENT_ID` says what keeps one of them",
        )  # fmt: skip
    if look.asked and look.subscribers:
        filter_text = look.subscribers[0].get("filter")
        others = f"or the filter {filter_text!r}, or the destination's own, leaves it out"
    else:
        others = "or a filter leaves it out"
    return look.says(
        "ok", "source", "all that the server has written was read and delivered", _where(look),
        f"if you expect a change: it is not in this server's binlog (sql_log_bin, binlog_do_db, "
        f"another server), {others}",
    )  # fmt: skip


def _waits_for_more(one: Mapping[str, Any]) -> str:
    """Return what a subscriber does instead of getting the newest changes; empty: it has them."""
    behind = one.get("entries_behind") or 0
    states = [word for word, key in (("paused", "paused_at"), ("catches up", "detached"),
                                     ("expired", "expired_at")) if one.get(key)]  # fmt: skip
    states += [f"{behind:,} entries behind"] if behind else []
    return f"client {one['client_id']}: {', '.join(states)}" if states else ""


def _unread(look: _Look) -> bool:
    return any(one.get("entries_behind") for one in look.subscribers)


def _where(look: _Look) -> list[str]:
    return list(_places(look))


def _places(look: _Look) -> Iterator[str]:
    if look("fetched.journal_name"):
        yield f"read up to {look('fetched.journal_name')}:{look('fetched.position')}"
    lag_s = look("lag_seconds")
    if lag_s is not None:
        yield f"lag {duration_text(lag_s)}"
    entries = look("entries")
    if entries is not None:
        yield f"{entries:,.0f} entries since its process started"


def _source_error(look: _Look) -> list[str]:
    error = look("source_error")
    return [str(error)] if error else []


def _call_text(place: Mapping[str, Any]) -> str:
    call_s = place.get("last_call_s")
    return "no call yet" if call_s is None else f"last call {duration_text(call_s)} ago"


def _counted(count: int, what: str, more: str) -> list[str]:
    plural = "" if count == 1 else "es" if what.endswith("ch") else "s"
    return [f"{count} {what}{plural} {more}"] if count else []
