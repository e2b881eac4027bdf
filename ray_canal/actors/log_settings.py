"""A deployment's [log], kept in the cluster: every process of ours takes it up when it begins.

Stages and decode tasks, which know no namespace, are told by the process that begins them, with the
ids of the destination that they work for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray_canal.actors.ray_internals import kv_delete, kv_get, kv_put
from ray_canal.config.changes import parsed
from ray_canal.config.log import LogConfig
from ray_canal.logs import ids_here, tell, with_process_ids, write_to_stderr

logger = logging.getLogger(__name__)

_PREFIX = "ray_canal:log:"


def keep_log_settings(namespace: str, config: LogConfig | None) -> None:
    """Keep them for the processes of a namespace; None: there are none any more."""
    if config is None:
        kv_delete(_PREFIX + namespace)
    else:
        kv_put(_PREFIX + namespace, config.model_dump_json())


def take_up_log_settings(namespace: str) -> None:
    """Log as the deployment of this namespace says, if it does."""
    kept = kv_get(_PREFIX + namespace)
    config = None if kept is None else parsed(LogConfig, kept)
    if config is not None:
        _log_as(config)


@dataclass(frozen=True, slots=True)
class LogTerms:
    """The terms by which a stage logs: the deployment's [log], and the ids of its lines."""

    config: LogConfig
    ids: Mapping[str, Any]


_taken: LogConfig | None = None
_terms: LogTerms | None = None


def log_terms() -> LogTerms | None:
    """Return how a stage logs that is begun here, in the name of this task's destination; None:
    as it does already."""
    return None if _taken is None else LogTerms(_taken, ids_here())


class StageActor:
    """Calls that every stage's actor answers."""

    def log_as(self, terms: LogTerms, stage: str) -> None:
        """Log so from now on, and say that this stage has begun."""
        take_over(terms)
        tell(logger, "stage", "the %s has begun", stage, stage=stage, pid=os.getpid())

    def alive(self) -> None:
        """Answer: this process is not stopped. Runs next to everything else, every few seconds."""


def take_over(terms: LogTerms | None) -> None:
    """Log as the process does that has begun this stage or task."""
    global _terms
    if terms is not None and terms != _terms:
        _terms = terms
        with_process_ids(**terms.ids)
        _log_as(terms.config)


def _log_as(config: LogConfig) -> None:
    global _taken
    if config != _taken:
        _taken = config
        write_to_stderr(config.format, config.level)
