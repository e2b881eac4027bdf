"""The spare: a destination whose fetcher was killed goes on in it, and another one comes."""

from __future__ import annotations

import os
import signal

import psutil  # type: ignore[import-untyped]
import pytest

import ray_canal as canal
from ray_canal.actors.control.homes import cluster_nodes, head_of
from ray_canal.actors.upstream import spare_record
from tests.fault.test_fencing import CLIENT, deployment, insert, next_ids, started, table
from tests.processes import FETCHER, RAYLET, SPARE, STORE, running, send, the_one, wait_for
from tests.servers import Server


def priority(pid: int) -> int:
    return int(psutil.Process(pid).nice())


@pytest.mark.timeout(300)
def test_a_killed_fetcher_is_replaced_by_the_spare(mysql97: Server, local_ray: None) -> None:
    table(mysql97, "spare")
    # Ended destinations' may still be there, and a spare has their title for a moment.
    wait_for(lambda: not running(FETCHER), 60, "no fetcher is left of before")
    config = deployment(mysql97, "spare", "spare")
    with started(config), canal.connect("spare", CLIENT, namespace="spare") as connector:
        connector.subscribe()
        insert(mysql97, "spare", 1)
        assert next_ids(connector, 1) == [1]
        head = head_of(cluster_nodes())
        wait_for(lambda: spare_record.is_ready(head), 180, "a spare is ready")
        ready, old = the_one(SPARE), the_one(FETCHER)  # they have their titles a moment later
        if os.geteuid() == 0:  # others may not
            ours = (old, ready, *running(STORE))
            assert {priority(pid) for pid in ours} == {priority(pid) for pid in running(RAYLET)}
        send(old, signal.SIGKILL)
        insert(mysql97, "spare", 2)
        assert next_ids(connector, 1) == [2]
        wait_for(lambda: running(FETCHER) == [ready], 180, "it is the fetcher")
    wait_for(lambda: ready not in running(FETCHER), 180, "who was taken ends with its destination")
