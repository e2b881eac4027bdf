"""Reading a configuration: a TOML file or a dict, typed, unknown keys refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ray_canal.config.deployment import CanalConfig, InstanceConfig
from ray_canal.config.section import IsPath, IsSecret, explained, sections_in
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
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, as TOML is: {error}") from None
    return load_text(text, path.resolve().parent, str(path))


def load_text(text: str, folder: Path, origin: str = "the configuration") -> CanalConfig:
    """Read a configuration from TOML; relative paths are taken from the folder. Raises ConfigError
    as `load`."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "; a text with backslashes belongs in single quotes"
        hint = hint if "Unescaped" in str(error) else ""
        raise ConfigError(f"{origin} is not TOML: {error}{hint}") from error
    _resolve_paths(tree, CanalConfig, folder)
    return _validate(tree, origin)


def _resolve_paths(tree: Any, section: type[BaseModel], base: Path) -> None:
    """Take relative paths of a section, and of those in it, from the folder `base`."""
    if not isinstance(tree, dict):
        return
    for name, info in section.model_fields.items():
        if name in tree:
            tree[name] = _resolved(tree[name], info.annotation, info.metadata, base)


def _resolved(value: Any, kind: Any, marks: Iterable[Any], base: Path) -> Any:
    if isinstance(value, str):
        if "://" in value:  # an object store's, or a catalog's
            return value
        scheme, _, path = value.partition(":")
        if value and any(isinstance(mark, IsPath) for mark in marks):
            return str(base / value)
        if scheme == "file" and any(isinstance(mark, IsSecret) for mark in marks):
            return f"file:{base / path}"
        return value
    parts = value if isinstance(value, list) else [value]
    for section in sections_in(kind):
        for part in parts:
            _resolve_paths(part, section, base)
    for each in get_args(kind):
        if isinstance(value, list) and hasattr(each, "__metadata__"):
            value = [_resolved(part, each, each.__metadata__, base) for part in value]
        elif isinstance(value, dict) and hasattr(each, "__metadata__"):
            value = {
                name: _resolved(part, each, each.__metadata__, base) for name, part in value.items()
            }
    return value


def instance_of(tree: dict[str, Any]) -> InstanceConfig:
    """Return the configuration of one destination. Raises ConfigError."""
    try:
        return InstanceConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explained(error, InstanceConfig)) from None


def config_of(text: str) -> CanalConfig:
    """Return a configuration that another process has read and written out. Raises ConfigError: it
    was of another version of this package."""
    try:
        return CanalConfig.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(
            f"the cluster refuses this configuration: {explained(error, CanalConfig)}; have its "
            "nodes the same version of ray_canal as you?"
        ) from None


def _validate(tree: dict[str, Any], origin: str) -> CanalConfig:
    try:
        return CanalConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {explained(error, CanalConfig, tree)}") from None
