"""Checks of a sink for `ray-canal check`: its packages, its target, its file of dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ray_canal.config import SinkConfig
from ray_canal.errors import CanalError
from ray_canal.sinks.open import make_sink, transform_of
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.target_checks import Checkable, SourceTable, path_check
from ray_canal.source.setting_checks import CheckResult


def check_sink(config: SinkConfig, tables: Sequence[SourceTable]) -> list[CheckResult]:
    """Return all checks of a sink, run on this machine; nothing is changed in the target.
    `tables`: those of the source that the sink takes, as far as they are known."""
    found: list[CheckResult] = []
    try:
        found.extend(_checks(config, tables))
    except SinkError as error:
        found.append(CheckResult("target", False, str(error)))
    except CanalError as error:
        found.append(CheckResult("settings", False, str(error)))
    except Exception as error:  # a class of the user's
        found.append(CheckResult("target", False, f"{type(error).__name__}: {error}"))
    return [replace(each, name=f"sink {config.name} {each.name}") for each in found]


def _checks(config: SinkConfig, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
    sink = make_sink(config)
    transform_of(config)
    if config.dead_letters:
        yield replace(path_check(Path(config.dead_letters)), name="dead_letters")
    if isinstance(sink, Checkable):
        yield from sink.check(tables)
    else:
        yield CheckResult("target", True, f"{config.target or config.type}: has no `check`")
