"""The check of the cursors' backend that `ray-canal check` makes."""

from __future__ import annotations

import os
from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.errors import CanalError
from ray_canal.meta.open import open_backend
from ray_canal.source.setting_checks import CheckResult

_NAME = "cursors"


def check_cursors(config: MetaConfig, destination: str) -> CheckResult:
    """Return whether the backend answers and has a destination's cursors readable. A file that is
    not there is not made; tables of a server that lack are, as by a start."""
    if config.backend == "sqlite" and not Path(config.path).exists():
        return _check_folder(Path(config.path))
    try:
        backend = open_backend(config)
        try:
            count = len(backend.load(destination))
            return CheckResult(_NAME, True, f"{backend.where}: {count} subscribers")
        finally:
            backend.close()
    except CanalError as error:
        return CheckResult(_NAME, False, str(error), "change [meta], or what it names")


def _check_folder(path: Path) -> CheckResult:
    folder = next(each for each in path.absolute().parents if each.exists())
    if os.access(folder, os.W_OK) and folder.is_dir():
        return CheckResult(_NAME, True, f"meta file {path} will be made")
    return CheckResult(_NAME, False, f"meta file {path}: {folder} cannot be written", "meta.path")
