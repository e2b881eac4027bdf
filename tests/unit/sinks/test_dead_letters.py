"""Tables that are set aside stay so over restarts; values of every kind are written as text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

from ray_canal.sinks.dead_letters import TablesAside, shown
from ray_canal.sinks.port import SinkError


def test_what_is_set_aside_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "aside.json"
    first = TablesAside(path)
    assert first.tables == frozenset()
    first.add(("my.shop", "order"), "a database may have dots in its name", "bin.000001:4")
    first.add(("shop", "item.old"), "no such column", "bin.000001:4")
    first.add(("shop", "order"), "too long", "bin.000002:4")
    again = TablesAside(path)
    assert again.tables == {("my.shop", "order"), ("shop", "item.old"), ("shop", "order")}
    assert again.reasons["shop.order"] == "too long"
    again.add(("shop", "order"), "other", "bin.000003:4")
    assert TablesAside(path).reasons["shop.order"] == "other"
    assert [each.name for each in path.parent.iterdir()] == ["aside.json"]


def test_what_a_full_disk_does_not_take_is_not_set_aside(tmp_path: Path) -> None:
    """A restart would not know of it, and write on with a gap."""
    path = tmp_path / "aside.json"
    new = tmp_path / "aside.json.new"
    aside = TablesAside(path)
    aside.add(("shop", "item"), "no such column", "bin.000001:4")
    new.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        aside.add(("shop", "order"), "too long", "bin.000002:4")
    assert aside.tables == TablesAside(path).tables == {("shop", "item")}
    assert list(aside.reasons) == ["shop.item"]
    new.unlink()
    aside.add(("shop", "order"), "too long", "bin.000002:4")
    assert TablesAside(path).tables == {("shop", "item"), ("shop", "order")}


@pytest.mark.parametrize("text", ["", "[]", '{"a.b": {"error": "x"}}'])
def test_a_file_that_somebody_broke_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "aside.json"
    path.write_text(text)
    with pytest.raises(SinkError, match=r"aside\.json cannot be read"):
        TablesAside(path)


def test_values_without_a_form_in_json() -> None:
    assert shown(b"\x00\xff") == "00ff"
    assert shown(dt.datetime(2026, 1, 2, 3, 4, 5)) == "2026-01-02T03:04:05"
    assert shown(Decimal("1.50")) == "1.50"
