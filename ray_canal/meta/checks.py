"""The check of the cursors' backend that `ray-canal check` makes."""

from __future__ import annotations

from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.disk_trial import NO_ROOM, write_failure
from ray_canal.errors import CanalError
from ray_canal.meta.open import open_backend
from ray_canal.source.setting_checks import CheckResult

_NAME = "cursors"


def check_cursors(config: MetaConfig, destination: str) -> CheckResult:
    """Return whether the backend answers and has a destination's cursors readable, and the disk of
    a file has room. A file that is not there is not made; tables of a server that lack are, as by a
    start."""
    path = Path(config.path)
    if config.backend == "sqlite" and not path.exists():
        return _disk_problem(path) or CheckResult(_NAME, True, f"meta file {path} will be made")
    try:
        backend = open_backend(config)
        try:
            count = len(backend.load(destination))
        finally:
            backend.close()
    except CanalError as error:
        return CheckResult(_NAME, False, str(error), "change [meta], or what it names")
    problem = _disk_problem(path) if config.backend == "sqlite" else None
    return problem or CheckResult(_NAME, True, f"{backend.where}: {count} subscribers")


def _disk_problem(path: Path) -> CheckResult | None:
    """Return what keeps the file, or one next to it, from being written."""
    folder = next(each for each in path.absolute().parents if each.exists())
    failure = write_failure(folder)
    if failure is None:
        return None
    text = f"meta file {path}: {folder} cannot be written: {failure.strerror}"
    is_full = failure.errno in NO_ROOM
    return CheckResult(_NAME, False, text, "free space there" if is_full else "change meta.path")
