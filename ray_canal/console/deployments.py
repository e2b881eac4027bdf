"""A whole deployment by its configuration, as text of a canal.toml that an admin sends: what the
commands `check`, `apply`, `sink list` and `import-meta` do with a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray_canal.config import CanalConfig, InstanceConfig, load_text
from ray_canal.meta.canal_import import import_meta
from ray_canal.meta.checks import check_cursors
from ray_canal.sinks.checks import check_sink
from ray_canal.sinks.open import make_sink
from ray_canal.sinks.target_checks import SourceTable
from ray_canal.source.checks import check_source, source_tables
from ray_canal.source.setting_checks import CheckResult


def parsed(toml: str, folder: Path) -> CanalConfig:
    """Return the configuration; relative paths are taken from the folder. Raises ConfigError."""
    return load_text(toml, folder)


def checks(config: CanalConfig) -> dict[str, list[dict[str, Any]]]:
    """Return the checks of each destination's source, of its cursors' backend and of its sinks'
    targets: name, ok, detail, fix, advisory. Raises nothing that these are at fault for."""
    found = {
        instance.destination: [
            *check_source(instance),
            check_cursors(config.meta, instance.destination),
            *_sink_checks(config, instance),
        ]
        for instance in config.instance
    }
    return {name: [asdict(each) for each in results] for name, results in found.items()}


def _sink_checks(config: CanalConfig, instance: InstanceConfig) -> Iterator[CheckResult]:
    sinks = [sink for sink in config.sink if sink.destination == instance.destination]
    tables = source_tables(instance) if sinks else []
    for sink in sinks:
        admits = instance.filter.of_subscriber(sink.tables).admits
        chosen = [SourceTable(*each) for each in tables if admits(each[0], each[1])]
        yield from check_sink(sink, chosen)


def listed_sinks(config: CanalConfig) -> list[dict[str, str]]:
    """Return the sinks of a configuration: name, destination, type, guarantee."""
    return [
        {
            "name": sink.name,
            "destination": sink.destination,
            "type": sink.type,
            "guarantee": make_sink(sink).guarantee,
        }
        for sink in config.sink
    ]


def imported(
    config: CanalConfig, meta_dat: str, destination: str, **how: Any
) -> dict[str, Any]:
    """Take over subscribers and cursors from the text of Canal's meta.dat; return them. `how`: as
    of `import_meta`. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "meta.dat"
        path.write_text(meta_dat, encoding="utf-8")
        name, subscribers = import_meta(config, path, destination, **how)
    found = [
        {
            "client_id": each.client_id,
            "filter": each.filter,
            "cursor": None if each.cursor is None else str(each.cursor.position),
        }
        for each in subscribers
    ]
    return {"destination": name, "subscribers": found}
