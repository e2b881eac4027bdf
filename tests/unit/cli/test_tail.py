"""Where `tail --client-id N` begins; what it prints is in tests/integration/test_cli_cluster.py."""

from __future__ import annotations

import pytest

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
