"""Plain records for the pages, made of what the collector knows of destinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray_canal.console.alerts import Problem, answers, problems
from ray_canal.console.collector import KnownDestination
from ray_canal.console.text import clock
from ray_canal.destination.status.bottleneck import bottleneck, slowest
from ray_canal.destination.status.diagnosis import Diagnosis, diagnose
from ray_canal.model.metrics import value_at

STAGES = (
    ("fetch", "fetch", "reads the server's stream, or files"),
    ("parse", "parse", "tables, DDL, transactions"),
    ("decode", "decode", "rows to columns"),
    ("buffer", "buffer", "order, transaction boundaries"),
    ("store", "store", "the log, cursors"),
    ("get", "get", "what clients take"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One stage of the pipeline: percent of the last seconds that it worked, and of all time that
    it waited. Tasks that run side by side add up to over 100."""

    name: str
    text: str
    busy_percent: float
    waiting_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A destination on the overview."""

    known: KnownDestination
    problems: list[Problem]
    slowest: tuple[str, Mapping[str, Any]] | None
    limit: str

    @property
    def state(self) -> str:
        """The state; that of one whose source is away says so."""
        state = self.known.state
        lost = state == "running" and not self.known.status.get("connected")
        return "not connected" if lost else state

    @property
    def level(self) -> str:
        """"critical", "warning", "ok", or "asked" before the first answer."""
        if self.problems:
            return self.problems[0].severity
        return "ok" if self.known.status else "asked"

    def value(self, path: str) -> Any:
        """Return what stands at `store.fill` of the status; None where nothing does."""
        return value_at(self.known.status, path)


_ORDER = {"critical": 0, "warning": 1, "asked": 2, "ok": 3}


def row(known: KnownDestination) -> Row:
    """Return a destination's row."""
    return Row(
        known=known,
        problems=problems(known),
        slowest=slowest(known.status),
        limit=limit(known.status),
    )


def rows(all_known: Sequence[KnownDestination]) -> list[Row]:
    """Return the rows of the overview: what is wrong comes first."""
    return sorted(map(row, all_known), key=lambda each: (_ORDER[each.level], each.known.name))


def stages(status: dict[str, Any]) -> list[StageRow]:
    """Return the stages of the pipeline in the order in which a chunk passes them."""
    found = status.get("stages") or {}
    return [
        StageRow(
            name=name,
            text=text,
            busy_percent=float(found[name].get("busy_percent", 0.0)),
            waiting_percent=_share(found[name]),
        )
        for name, _, text in STAGES
        if name in found
    ]


def _share(times: dict[str, float]) -> float:
    both = times["busy_s"] + times["waiting_s"]
    return 100 * times["waiting_s"] / both if both else 0.0


def unfinished_first(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the snapshots of a destination, those that have not ended first."""
    found: list[dict[str, Any]] = status.get("snapshots") or []
    return sorted(found, key=lambda each: each["state"] in ("done", "cancelled"))


def limit(status: dict[str, Any]) -> str:
    """Return the stage that limits a destination now, "subscribers" while the log is full, "server"
    while it sends less than could be read; "" while there is nothing more to read."""
    found = bottleneck(status) if status else None
    return "" if found is None or found.stage == "source" else found.stage


def why(known: KnownDestination, client_id: int | None = None) -> Diagnosis | None:
    """Return why nothing comes from a destination, to one subscriber if named; None before its
    first answer. What it said before it fell silent says nothing of now."""
    if not answers(known):
        (problem,) = problems(known)
        since = clock(known.silent_since or known.answered_at)
        evidence = (known.error or f"asked, and silent, since {since}",)
        advice = problem.advice.rstrip(".")
        return Diagnosis(known.name, "problem", "process", "it does not answer", evidence, advice)
    return diagnose(known.status, known.subscribers, client_id) if known.status else None
