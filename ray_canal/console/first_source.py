"""The first source: what a form gives, checked, written as a canal.toml, and started.

The password is written as a reference: to an environment variable or a file that the form names, or
to a file of its own, readable by its owner alone, next to the canal.toml.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, Field

from ray_canal.config import CanalConfig, load
from ray_canal.config.section import REFERENCES
from ray_canal.console.cluster import Cluster
from ray_canal.errors import ConfigError
from ray_canal.source.checks import check_source


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Where the form writes: into the one file `path`, or `folder`/NAME.toml; nowhere if both are
    empty."""

    path: str = ""
    folder: str = ""

    def file(self, destination: str) -> Path:
        """Return the file for a destination. Raises ConfigError: there is no place for one."""
        if self.folder:
            return Path(self.folder).resolve() / f"{destination}.toml"
        if self.path:
            return Path(self.path).resolve()
        raise ConfigError(
            "this console writes no files: add the source to the deployment's canal.toml and run "
            "`ray-canal apply`, or give console.sources_folder"
        )

    def __str__(self) -> str:
        return f"{self.folder}/NAME.toml" if self.folder else self.path


class FirstSource(BaseModel):
    """Fields of the form. `password` may be `env:NAME` or `file:PATH`."""

    model_config = ConfigDict(extra="forbid")

    destination: str = Field(pattern=r"^[A-Za-z0-9_.\-]+$", max_length=128)
    address: str = Field(min_length=1, max_length=512)
    username: str = Field("", max_length=128)
    password: str = Field("", max_length=1024)
    tables: str = Field(r".*\..*", max_length=16384)

    def tree(self, password: str, meta_path: str) -> dict[str, Any]:
        """Return the canal.toml's content."""
        source = {"address": self.address, "username": self.username, "password": password}
        return {
            "meta": {"path": meta_path},
            "instance": [
                {
                    "destination": self.destination,
                    "source": {key: value for key, value in source.items() if value},
                    "filter": {"tables": self.tables},
                }
            ],
        }

    def config(self, password: str, meta_path: str) -> CanalConfig:
        """Return the deployment. Raises ConfigError."""
        return load(self.tree(password, meta_path))


def check_first(first: FirstSource) -> list[dict[str, Any]]:
    """Return the checks of a source: name, ok, detail, fix, advisory. Raises ConfigError."""
    (instance,) = first.config(first.password, "meta.db").instance
    return [asdict(each) for each in check_source(instance)]


def start_first(cluster: Cluster, files: SourceFiles, first: FirstSource) -> dict[str, Any]:
    """Check again, write the canal.toml and start it; return the file and the destinations.

    Raises ConfigError: the file exists or has no place, a check fails; what keeps the destination
    from its source.
    """
    path = files.file(first.destination)
    if path.exists():
        raise ConfigError(f"{path} exists; add a section to it, then `ray-canal start {path}`")
    failed = [each for each in check_first(first) if not (each["ok"] or each["advisory"])]
    if failed:
        raise ConfigError(f"{failed[0]['name']}: {failed[0]['detail']}")
    reference = first.password
    secret = path.with_name(f"{first.destination}.password")
    if reference and reference.partition(":")[0] not in REFERENCES:
        reference = f"file:{secret.name}"
        _write(secret, first.password, 0o600)
    _write(path, tomlkit.dumps(first.tree(reference, "meta.db")), 0o644)
    try:
        names = cluster.start(load(path))
    except BaseException:
        path.unlink(missing_ok=True)  # so that the form can be sent again
        if reference.startswith("file:") and reference != first.password:
            secret.unlink(missing_ok=True)
        raise
    return {"file": str(path), "destinations": names}


def _write(path: Path, text: str, mode: int) -> None:
    """Raises ConfigError: it cannot be written, or exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
