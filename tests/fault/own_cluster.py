"""A test's program with a Ray cluster of its own, as a process has one Ray, and what it prints.

The program's nodes are this machine's: `own_cluster` in it, `told_by` in the test that runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2

from tests.fault.ray_nodes import cluster_environment

_PREEMPTION = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
NO_CLUSTER = 3
"""Exit code of a program whose cluster did not start."""


@contextmanager
def own_cluster(**head: Any) -> Iterator[Cluster]:
    """A head of which this process is the driver; nothing of it outlives a failure. `head`: what
    `Cluster.add_node` takes."""
    cluster = Cluster()
    try:
        try:
            cluster.add_node(include_dashboard=False, **head)
            ray.init(address=cluster.address, log_to_driver=False)
        except Exception:
            traceback.print_exc()
            sys.exit(NO_CLUSTER)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def drain_node(cluster: Cluster, node_id: str) -> None:
    """Tell a node, as before its machine is taken away, that it ends in ten minutes."""
    gcs = GcsClient(address=cluster.address)
    gcs.drain_node(node_id, _PREEMPTION, "test", int(time.time() * 1000) + 600_000)


def told_by(
    module: str, *arguments: object, timeout_s: float = 230.0, **environment: str
) -> dict[str, Any]:
    """Run a program; return what it printed last, as JSON. Ray may say something before and after.

    Raises:
        RuntimeError: its cluster did not start, as may be under load: no AssertionError, so the
            test is tried once more.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, **cluster_environment(), **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode == NO_CLUSTER:
        raise RuntimeError(f"{module}: its cluster did not start")
    assert done.returncode == 0, done.stdout[-2000:]
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    told: dict[str, Any] = json.loads(answers[-1])
    print(told)
    return told
