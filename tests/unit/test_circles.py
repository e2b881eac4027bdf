"""No modules import each other in a circle, in whatever room they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_tidy import modules, name_of


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, too: they only hide a circle. (What the front door shows is
    imported when it is asked for.)"""
    known = {name_of(path).removesuffix("/__init__").replace("/", ".") for path in modules()}
    left: dict[str, set[str]] = {}
    for path in modules():
        here = name_of(path).removesuffix("/__init__").replace("/", ".")
        if here != "__init__":
            names = (name.removeprefix("ray_canal.") for name in imported_names(path))
            left[here] = {n if n in known else n.rpartition(".")[0] for n in names} & known - {here}
    while free := [name for name in left if not any(other in left for other in left[name])]:
        for name in free:
            del left[name]
    while unused := [name for name in left if not any(name in others for others in left.values())]:
        for name in unused:
            del left[name]
    assert set(left) == set()


def imported_names(path: Path) -> Iterator[str]:
    """As `imported`, with the names that are taken from each module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
