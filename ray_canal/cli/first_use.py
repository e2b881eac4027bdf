"""The first command on a machine compiles kernels, and prints nothing for a minute or two."""

from __future__ import annotations

import typer

from ray_canal.cache_folder import cache_folder, has_files


def tell_of_first_use() -> None:
    """Print that kernels are compiled first, if none have been on this machine."""
    folder = cache_folder("kernels")
    if not has_files(folder):
        typer.echo(
            "first use on this machine: kernels are compiled for it, which takes a minute or two "
            f"(kept in {folder}; `python -m ray_canal.warm` does nothing else)",
            err=True,
        )
