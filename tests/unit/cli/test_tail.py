"""Where `tail --client-id N` begins, and what ends it before it prints; what it prints is in
tests/integration/test_cli_cluster.py."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import cli, render
from ray_canal.cli.tail import _place_of
from ray_canal.model.position import EntryPosition


@pytest.mark.parametrize(
    ("cursor", "wanted"),
    [
        (None, None),
        ("", None),
        ("bin.000031:98231", EntryPosition("bin.000031", 98231)),
        ("bin.000031:98231+3.1", EntryPosition("bin.000031", 98231)),
        ("log:of.000031:4", EntryPosition("log:of.000031", 4)),
    ],
)
def test_it_begins_with_the_transaction_of_the_cursor(
    cursor: str | None, wanted: EntryPosition | None
) -> None:
    assert _place_of(cursor) == wanted


def test_a_first_ctrl_c_ends_the_wait_for_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later it ends the printing, between two changes."""
    before, seen = signal.getsignal(signal.SIGINT), list[Any]()

    class Connector:
        def subscribe(self, *_: Any, **__: Any) -> None:
            seen.append(signal.getsignal(signal.SIGINT))

    @contextlib.contextmanager
    def connected(*_: Any, **__: Any) -> Iterator[Connector]:
        yield Connector()

    def printed(*_: Any, **__: Any) -> None:
        seen.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr(canal, "connect", connected)
    monkeypatch.setattr(render, "print_changes", printed)
    done = CliRunner().invoke(cli.app, ["tail", "orders"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert len(seen) == 2
    assert seen[0] == before
    assert seen[1] != before
    assert signal.getsignal(signal.SIGINT) == before
