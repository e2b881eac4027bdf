"""Answers of a command: lines for people, or JSON for programs; and what Ray has not done."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ray_canal.errors import InstanceNotFound


def answer(found: Any, *lines: str, as_json: bool) -> None:
    """Print `found` as JSON, or these lines."""
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for line in lines:
        typer.echo(line)


@contextlib.contextmanager
def down_by(config: Path | None) -> Iterator[None]:
    """Name --config in the error about a destination that does not run, if it was not given."""
    try:
        yield
    except InstanceNotFound as error:
        if config is None:
            error.args = (f"{error.args[0]}, or name its file by --config while it is down",)
        raise


def is_of_ray(error: Exception) -> bool:
    """Return whether Ray raised this: its head does not answer, or what was asked has ended."""
    exceptions = sys.modules.get("ray.exceptions")
    return exceptions is not None and isinstance(error, exceptions.RayError)


def ray_text(error: Exception) -> str:
    """Return a line about an error of Ray's, with what to do."""
    if isinstance(error, sys.modules["ray.exceptions"].RayTaskError):
        cause = " ".join(str(error.cause).split())
        return (
            f"Ray: {error.function_name}: {type(error.cause).__name__}: {cause}; see the newest "
            "logs in session_latest/logs of Ray's folder"
        )
    first = next(iter(str(error).splitlines()), "")
    return (
        f"Ray: {type(error).__name__}: {first}; see `ray status` whether its head answers, then do "
        "it again"
    )
