"""A client of a cluster that has gone asks nothing of Ray while nobody listens at its address."""

from __future__ import annotations

import os
import subprocess
import sys

_JOINS = """
import sys
from ray_canal.client import joining
from ray_canal.errors import InstanceNotRunning

if sys.argv[1] == "again":
    joining._ours.address, joining._ours.head = "", "198.51.100.7:6379"
joining.keep_joined.__defaults__ = (0.5,)
joining._FIRST_JOIN_LIMIT_S = 0.5
try:
    joining.connect_ray()
except InstanceNotRunning as error:
    print(error)
"""


def joined_at_a_dead_address(which: str) -> str:
    """What is said in a process of its own: one that other tests have made a member of a cluster
    has joined already."""
    done = subprocess.run(
        [sys.executable, "-c", _JOINS, which],
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout, done.stderr
    return done.stdout


def test_a_first_join_at_a_dead_address_says_soon_what_is_wrong() -> None:
    """Ray's own `init` waits for more than five minutes."""
    said = joined_at_a_dead_address("first")
    assert said.startswith("no Ray cluster stood at '127.0.0.1:1' within 0 s (nobody listens")
    assert "RAY_ADDRESS" in said


def test_who_gave_up_waiting_for_the_head_waits_again() -> None:
    said = joined_at_a_dead_address("again")
    assert said.startswith("Ray's cluster at 198.51.100.7:6379 is gone; no Ray cluster stood at")
