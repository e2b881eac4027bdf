"""The first command on a machine compiles kernels, and prints nothing for a minute or two."""

from __future__ import annotations

import os
from pathlib import Path

import typer


def tell_of_first_use() -> None:
    """Print that kernels are compiled first, if none have been on this machine."""
    root = os.environ.get("RAY_CANAL_CACHE_DIR")
    folder = (Path(root) if root else Path.home() / ".cache" / "ray_canal") / "kernels"
    if not folder.is_dir():
        typer.echo(
            "first use on this machine: kernels are compiled for it, which takes a minute or two "
            f"(kept in {folder}; `python -m ray_canal.warm` does nothing else)",
            err=True,
        )
