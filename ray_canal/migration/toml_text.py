"""The text of an imported canal.toml: what has to be known as comments in front, then the keys."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit

from ray_canal.migration.convert import Imported

_WIDTH = 96


def render(imported: Imported, sources: Sequence[str]) -> str:
    """TOML that `canal.load_config` reads."""
    document = tomlkit.document()
    _comment(document, f"Made by `ray-canal import` from {', '.join(sources)}.")
    _comment(document, "Keys that are not here have the defaults of docs/reference/canal.toml.")
    if imported.findings:
        document.add(tomlkit.comment(""))
    for finding in imported.findings:
        _comment(document, f"{'REFUSED ' if finding.refused else ''}{finding}")
    for name, value in imported.tree.items():
        document.add(tomlkit.nl())
        if isinstance(value, list):
            array = tomlkit.aot()
            for item in value:
                array.append(_table(item))
            document.append(name, array)
        else:
            document.append(name, _table(value))
    return tomlkit.dumps(document)


def _comment(document: tomlkit.TOMLDocument, text: str) -> None:
    for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False):
        document.add(tomlkit.comment(line))


def _table(values: Mapping[str, Any]) -> tomlkit.items.Table:
    """A section; its own keys first, so that they are not taken for a section's in it."""
    table = tomlkit.table()
    for key, value in values.items():
        if not isinstance(value, dict):
            table.append(key, _value(value))
    for key, value in values.items():
        if isinstance(value, dict):
            table.append(key, _table(value))
    return table


def _value(value: Any) -> Any:
    """Regular expressions as literal strings, so that they read as they are meant."""
    if isinstance(value, str) and "\\" in value and "'" not in value and value.isprintable():
        return tomlkit.string(value, literal=True)
    return value
