"""Reading a configuration: a TOML file or a dict, typed, unknown keys refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ray_canal.config.deployment import CanalConfig
from ray_canal.config.section import explained
from ray_canal.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load(config: str | os.PathLike[str] | dict[str, Any] | CanalConfig) -> CanalConfig:
    """Read a configuration from a TOML file, a dict, or pass a CanalConfig through.

    Relative paths in a file are taken from the file's directory. Raises ConfigError: file missing
    or not TOML; unknown key (with the nearest valid one); a value out of its range.
    """
    if isinstance(config, CanalConfig):
        return config
    if isinstance(config, dict):
        return _validate(config, "configuration")
    path = Path(config)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    _resolve_paths(tree, path.resolve().parent)
    return _validate(tree, str(path))


def _resolve_paths(tree: dict[str, Any], base: Path) -> None:
    meta = tree.get("meta")
    if isinstance(meta, dict) and isinstance(meta.get("path"), str):
        meta["path"] = str(base / meta["path"])
    server = tree.get("server")
    tls = server.get("tls") if isinstance(server, dict) else None
    if isinstance(tls, dict):
        tls.update({key: str(base / name) for key, name in tls.items() if name})
    for instance in tree.get("instance", []):
        source = instance.get("source") if isinstance(instance, dict) else None
        if isinstance(source, dict):
            if isinstance(source.get("files"), list):
                source["files"] = [str(base / name) for name in source["files"]]
            if isinstance(source.get("schema_sql"), str) and source["schema_sql"]:
                source["schema_sql"] = str(base / source["schema_sql"])
        tsdb = instance.get("tsdb") if isinstance(instance, dict) else None
        if isinstance(tsdb, dict) and isinstance(tsdb.get("path"), str) and tsdb["path"]:
            tsdb["path"] = str(base / tsdb["path"])


def _validate(tree: dict[str, Any], origin: str) -> CanalConfig:
    try:
        return CanalConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {explained(error, CanalConfig)}") from None
