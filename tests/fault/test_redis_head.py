"""Ray's head keeps its state in Redis, dies and comes back: destinations elsewhere go on."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fault.ray_nodes import PATIENCE_S, RayNodes
from tests.fault.test_fencing import insert, table
from tests.processes import wait_for
from tests.servers import Server
from tests.servers.redis import start_redis

AWAY_S = 5.0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_destinations_go_on_while_the_head_is_away(mysql97: Server, tmp_path: Path) -> None:
    """P2: and the controller looks after them again when it is back."""
    table(mysql97, "ft")
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "{tmp_path}/meta.db"\nshared = true\n'
        '[ray]\nnode = "any"\ndestinations_per_process = 1\n'
        '[[instance]]\ndestination = "ft"\n'
        f'[instance.source]\naddress = "{mysql97.address}"\nusername = "root"\n'
        "start = \"earliest\"\n[instance.filter]\ntables = 'ft\\.t'\n"
    )
    rows_file = tmp_path / "ft.jsonl"
    rows_file.touch()
    written = 0

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in rows_file.read_text().splitlines()]

    def one_more() -> None:
        nonlocal written
        written += 1
        insert(mysql97, "ft", written)
        wait_for(lambda: len(read()) >= written, PATIENCE_S, f"row {written}")

    with start_redis(tmp_path / "redis") as redis, contextlib.ExitStack() as stack:
        nodes = RayNodes(tmp_path, redis.address)
        stack.callback(nodes.remove)
        head = contextlib.ExitStack()
        stack.enter_context(head)
        head.enter_context(nodes.running(nodes.head))
        how = "--num-cpus=1", '--resources={"readers": 1}'
        stack.enter_context(nodes.running(lambda: nodes.worker(*how)))
        nodes.program("start", str(config), str(tmp_path), "2")
        for _ in range(3):
            one_more()
        head.close()
        died_s = time.monotonic()
        while time.monotonic() < died_s + AWAY_S:
            one_more()
            time.sleep(0.1)
        away = written
        head.enter_context(nodes.running(nodes.head))
        told = json.loads(nodes.program("nodes"))
        back_s = time.monotonic() - died_s - AWAY_S
        for _ in range(3):
            one_more()
        rows = read()
    pauses = [two["at"] - one["at"] for one, two in itertools.pairwise(rows[:away])]
    print(
        f"the head died and stood again, and its controller answered, {back_s:.1f} s after its "
        f"start; the longest time without a row was {max(pauses[3:]):.1f} s"
    )
    assert told["generations"] == {"ft": 1}  # nobody began again
    (there,) = (each for each in told["nodes"] if not each["head"])
    assert there["destinations"] == ["ft"]
    assert [row["id"] for row in rows] == list(range(1, written + 1))
