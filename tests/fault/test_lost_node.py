"""A node dies that holds chunks of the log: they are read from the server again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fault.lost_node import ROWS
from tests.fault.own_cluster import told_by
from tests.integration.test_subscribers import filled
from tests.servers import Server

pytestmark = pytest.mark.ray


def run(server: Server, folder: Path, how: str, **settings: str) -> dict[str, Any]:
    name = f"lost_{how}"
    server.execute(f"drop database if exists {name}")  # of a run that erred
    filled(server, name, *((1 + 1000 * k, 1000) for k in range(ROWS // 1000)))
    told = told_by("tests.fault.lost_node", server.address, name, folder, how, **settings)
    assert told["by_get"] == list(range(1, ROWS + 1))
    assert told["by_loop"] == list(range(1, ROWS + 1))
    return told


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["decoded", pytest.param("slow", marks=pytest.mark.soak)])
def test_chunks_of_a_node_that_dies_are_decoded_again(
    how: str, mysql97: Server, tmp_path: Path
) -> None:
    """B1: as long as their raw chunks are elsewhere; nobody notices but by waiting. However long
    that takes, a chunk that is only slow is not taken for lost."""
    told = run(mysql97, tmp_path, how)
    assert told["generations"] == 1
    assert not told["restarts"]


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["told", "noticed"])
def test_chunks_that_cannot_be_decoded_again_are_read_from_the_server(
    how: str, mysql97: Server, tmp_path: Path
) -> None:
    """B1: the log notices (a client tells it, or it finds out itself), and subscribers go on.

    Ray forgets here at once how a chunk was made, as it does after four deaths or much lineage."""
    told = run(mysql97, tmp_path, how, RAY_lineage_pinning_enabled="0")
    assert told["generations"] == 2
    known = ("with the node that had it", "before the destination restarted")
    assert all(any(words in text for words in known) for text in told["restarts"])
