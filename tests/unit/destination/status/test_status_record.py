"""A real destination tells the keys that are declared, with values of the declared types."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from ray_canal.destination.status.status_record import DestinationStatus
from ray_canal.model.reports import SnapshotReport, SubscriberReport
from tests.local_destination import ALL, instance, run, running, take


def wrong(kind: Any, value: Any, where: str) -> list[str]:
    """What of a value is not as its type says; empty: nothing."""
    origin = get_origin(kind)
    if kind is Any or kind is object:
        return []
    if origin in (Union, UnionType):
        found = [wrong(one, value, where) for one in get_args(kind)]
        return min(found, key=len)
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        unknown = [f"{where}.{key}: not declared" for key in value.keys() - hints.keys()]
        missing = [f"{where}.{key}: missing" for key in kind.__required_keys__ - value.keys()]
        known = {key: each for key, each in value.items() if key in hints}
        parts = [wrong(hints[key], each, f"{where}.{key}") for key, each in known.items()]
        return [*unknown, *missing, *chain(*parts)]
    if origin in (list, dict):
        values = value.items() if isinstance(value, Mapping) else enumerate(value)
        parts = [wrong(get_args(kind)[-1], each, f"{where}[{key}]") for key, each in values]
        return [*chain(*parts)]
    if not isinstance(value, (int, float) if kind is float else kind):
        return [f"{where}: {value!r} is not {kind}"]
    return []


def test_status_and_subscribers_are_as_declared(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, instance()) as destination:
            await destination.subscribe(7, ALL)
            assert await take(destination, 7, ack=False) is not None
            status = await destination.status()
            assert wrong(DestinationStatus, status, "status") == []
            assert get_type_hints(DestinationStatus).keys() == status.keys()
            (one,) = await destination.subscribers()
            assert wrong(SubscriberReport, one, "subscriber") == []

    run(story())


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("rows", "1", "s.rows: '1' is not <class 'int'>"),
        ("left_s", "soon", "s.left_s: 'soon' is not <class 'float'>"),
        ("speed", 1, "s.speed: not declared"),
        ("table_rows", {"a.b": {"rows": 1}}, "s.table_rows[a.b].done: missing"),
    ],
)
def test_what_is_not_as_declared_is_found(key: str, value: Any, found: str) -> None:
    assert found in wrong(SnapshotReport, {key: value}, "s")
