"""A plan as a diff."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ray_canal import cli
from ray_canal.cli.apply import is_change, plan_lines
from ray_canal.client import apply as client_apply

PLAN: dict[str, Any] = {
    "add": ["audit"],
    "change": {"orders": {"filter.tables": ["'a'", "'b'"], "source.password": ["'***'"] * 2}},
    "same": ["crm"],
    "unlisted": ["old"],
    "server": "reopen",
    "server_keys": ["port"],
    "ports": {"Arrow Flight": "same", "the console": "port", "another": "open"},
    "sinks": {"s1": "start", "s2": "restart", "s3": "same", "s4": "unlisted"},
}
NOTHING = {**PLAN, "add": [], "change": {}, "server": "same", "ports": {"the console": "same"},
           "sinks": {"s3": "same"}}  # fmt: skip


def test_a_line_for_each_difference() -> None:
    assert plan_lines(PLAN, remove=False) == [
        "+ destination audit",
        "~ destination orders: started over at its cursors",
        "    filter.tables: 'a' -> 'b'",
        "    source.password: '***' -> '***'",
        "~ Canal's TCP port: reopened, its clients connect again (port)",
        "~ the console: opened again, who is connected comes again (port)",
        "+ another",
        "+ sink s1",
        "~ sink s2: started over where it is",
        "= destination old: not in this file, goes on (--remove stops it)",
        "= sink s4: not in this file, goes on (--remove stops it)",
        "= destination crm",
        "= sink s3",
    ]
    assert "- destination old: stopped, its cursors stay" in plan_lines(PLAN, remove=True)


@pytest.mark.parametrize(
    ("plan", "remove", "wanted"),
    [(PLAN, False, True), (NOTHING, False, False), (NOTHING, True, True),
     ({**NOTHING, "unlisted": []}, True, False), ({**NOTHING, "server": "open"}, False, True),
     ({**NOTHING, "ports": {"the console": "port"}}, False, True),
     ({**NOTHING, "unlisted": [], "sinks": {"s4": "unlisted"}}, False, False),
     ({**NOTHING, "sinks": {"s4": "unlisted"}}, True, True),
     ({**NOTHING, "sinks": {"s1": "start"}}, False, True)],
)  # fmt: skip
def test_whether_there_is_anything_to_do(plan: Any, remove: bool, wanted: bool) -> None:
    assert is_change(plan, remove=remove) is wanted


def test_an_interrupted_apply_says_what_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the source of `audit`, which was begun, does not answer."""
    left = {**PLAN, "add": ["bills"], "change": {"orders": {}}, "same": ["crm", "audit"]}
    plans = [{**PLAN, "add": ["audit", "bills"]}, left]

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client_apply, "plan", lambda _: plans.pop(0))
    monkeypatch.setattr(client_apply, "apply", interrupted)
    monkeypatch.setattr("ray_canal.sinks.actor.sink_plan", lambda _, **__: {})
    config = tmp_path / "canal.toml"
    config.write_text('[[instance]]\ndestination = "audit"\nsource.address = "127.0.0.1:3306"\n')
    done = CliRunner().invoke(cli.app, ["apply", str(config), "--yes"])
    assert done.exit_code == 130
    assert done.output.splitlines()[-4:] == [
        "audit: begun, and goes on; `ray-canal stop audit` stops it",
        "bills: not begun",
        "orders: not changed",
        "interrupted: nothing of it is undone; `ray-canal apply` again does the rest",
    ]
