"""Port of a look at a sink's target before a start, which changes nothing there.

A sink that can be looked at has a method `check`; others are told to be unchecked.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ray_canal.disk_trial import NO_ROOM, write_failure
from ray_canal.source.setting_checks import CheckResult, listed


@dataclass(frozen=True)
class SourceTable:
    """A table that the source has now, and that a sink takes, with its primary key."""

    schema: str
    table: str
    key: tuple[str, ...]


@runtime_checkable
class Checkable(Protocol):
    """A sink whose target can be looked at."""

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Connect and look, without shutting out who writes there. `tables`: of the source, as far
        as they are known. Raises SinkError: the target cannot be asked."""
        ...


def tables_check(
    who: str, named: Collection[object], absent: Collection[object], makes: bool, setting: str
) -> Iterator[CheckResult]:
    """Yield whether all tables that a sink writes to are in its target, or will be made there:
    `makes`, which is `setting`. None is known of: nothing."""
    if absent and not makes:
        yield CheckResult(
            "tables", False, f"{who} has no {listed(absent)}", f"make them, or set {setting}"
        )
    elif named:
        there = len(named) - len(absent)
        yield CheckResult("tables", True, f"{there} are there, {len(absent)} will be made")


def path_check(path: Path) -> CheckResult:
    """Return whether a file or folder can be made or written at `path` by this process, here."""
    path = path.absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(there, os.W_OK) or not (there == path or there.is_dir()):
        return CheckResult("path", False, f"{path}: {there} cannot be written here")
    if there.is_file() or there.is_dir():  # a device needs no room
        failure = write_failure(there if there.is_dir() else there.parent)
        if failure is not None and failure.errno in NO_ROOM:
            return CheckResult("path", False, f"{path}: {failure.strerror}", "free space there")
    return CheckResult("path", True, str(path))
