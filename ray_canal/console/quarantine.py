"""Quarantined changes on the console: what is held, decoded with a schema that somebody gives, and
removed once they say that they have it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray_canal.config import CanalConfig
from ray_canal.console.live_tail import masked
from ray_canal.dead_letters import is_message
from ray_canal.errors import ConfigError, DecodeError
from ray_canal.model.schema_record import EVENT_AT, QuarantinedChunk, held_name
from ray_canal.redrive import decode_held, held, release
from ray_canal.render import changes

ROWS_MAX = 10_000
"""So many are decoded at a time; the rest comes when these were removed."""

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Changes as JSON lines, the keys of the chunks that they are of, and why others can not be
    decoded."""

    lines: list[str]
    keys: list[Key]
    failure: str = ""


def shown_chunks(config: CanalConfig, destination: str) -> list[dict[str, Any]]:
    """Return what is held, dead letters included: place, tables, size, why. Raises ConfigError:
    only the destination knows."""
    _refuse_memory(config)
    return [
        {
            "place": f"{chunk.journal_name}:{chunk.position}",
            "tables": [held_name(pair) for pair in chunk.tables],
            "bytes": chunk.size_bytes,
            "why": _why(chunk),
        }
        for chunk in held(config, destination)
    ]


def _why(chunk: QuarantinedChunk) -> str:
    if is_message(chunk):
        return f"given up by {chunk.server}"
    if any(schema == EVENT_AT for schema, _ in chunk.tables):
        return "could not be decoded"
    return "columns not known"


def decoded(
    config: CanalConfig, destination: str, schema_sql: str, hidden: Sequence[str]
) -> Decoded:
    """Return the first changes that are held, hidden values as dots. Raises ConfigError,
    TableMetaMismatch, DecodeError: nothing can be decoded, as a schema is not known or does not
    fit, or none but dead letters are left."""
    _refuse_memory(config)
    lines: list[str] = []
    keys: list[Key] = []
    failure = ""
    try:
        for key, batches in decode_held(config, destination, schema_sql):
            rows = changes(batches)
            lines += [
                json.dumps(masked(row, hidden), ensure_ascii=False, default=str) for row in rows
            ]
            keys.append(key)
            if len(lines) >= ROWS_MAX:
                break
    except DecodeError as error:
        if not keys:
            raise
        failure = str(error)
    return Decoded(lines, keys, failure)


def remove_chunks(config: CanalConfig, destination: str, keys: str) -> int:
    """Remove the chunks with these keys (as `told_keys` made them); return how many there were.
    Raises ConfigError: they are none."""
    _refuse_memory(config)
    try:
        parsed = [(str(a), str(b), int(c)) for a, b, c in json.loads(keys)]
    except (ValueError, TypeError) as error:
        raise ConfigError("these are no chunks: decode them again") from error
    return release(config, destination, parsed)


def told_keys(keys: Sequence[Key]) -> str:
    """Return keys as text for a form."""
    return json.dumps(keys)


def first_lines(found: Decoded, most: int = 50) -> str:
    """Return the first lines, for a page."""
    return "\n".join(itertools.islice(found.lines, most))


def _refuse_memory(config: CanalConfig) -> None:
    if config.meta.backend == "memory" and not config.instance[0].tsdb.path:
        raise ConfigError("its schemas are kept in its own memory (meta.backend), out of reach")
