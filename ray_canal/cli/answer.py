"""What a command has done: lines for people, or JSON for programs."""

from __future__ import annotations

import json
from typing import Any

import typer


def answer(found: Any, *lines: str, as_json: bool) -> None:
    """Print `found` as JSON, or these lines."""
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for line in lines:
        typer.echo(line)
