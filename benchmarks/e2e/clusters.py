"""Ray clusters for the child that has them: a plain one, one for Spark, one with decoder nodes.

Decoder nodes are raylets of their own on this machine (`ray.cluster_utils`), with one CPU each for
Ray, of which a control group gives their decode tasks a part, so that several fit onto few cores.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.e2e.peers.saying import say
from benchmarks.e2e.processes import environment_of, with_title

NODE = "RAY_CANAL_BENCH_NODE"
NODE_CORES = 0.1
"""Part of a core that a node's decode tasks get."""

_CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 20_000
_WATCH_S = 0.2
DECODING = "ray::decode_chunk"
_STORE_BYTES = 1 << 30
_NODE_STORE_BYTES = 256 << 20


@contextlib.contextmanager
def running(shape: str) -> Iterator[None]:
    """A cluster that this process is connected to; its address is told."""
    import ray

    if shape == "growing":
        with _head_alone():
            yield
        return
    if shape == "spark":
        from ray_canal.spark import provide_java

        provide_java()  # before Ray starts: executors inherit the PATH
    ray.init(
        "local",  # not another one of this machine
        num_cpus=4 if shape == "spark" else 3,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=_STORE_BYTES,
    )
    say("address", 0, address=ray.get_runtime_context().gcs_address)
    yield
    ray.shutdown()


_nodes = contextlib.ExitStack()
_groups: dict[str, Path] = {}
_cluster: Any = None


@contextlib.contextmanager
def _head_alone() -> Iterator[None]:
    """A head node without CPUs for decoding; `add_decoder_node` gives it some."""
    global _cluster  # a process has one
    import ray
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": _STORE_BYTES}
    _cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=_cluster.address, log_to_driver=False)
    threading.Thread(target=_limit_decoders, daemon=True).start()
    with _nodes:
        yield
        ray.shutdown()
        _cluster.shutdown()


def add_decoder_node() -> None:
    """One more node; returns when a worker of each node has loaded the kernels."""
    import ray

    from ray_canal.warm import warm

    number = str(len(_groups))
    _cluster.add_node(num_cpus=1, object_store_memory=_NODE_STORE_BYTES, env_vars={NODE: number})
    _groups[number] = _nodes.enter_context(_group(f"ray_canal_bench_{os.getpid()}_{number}"))
    loading = ray.remote(warm).options(num_cpus=1, scheduling_strategy="SPREAD")
    ray.get([loading.remote() for _ in _groups])


def limits_available() -> str:
    """ "" when control groups can be made, else why not."""
    probe = _CPU_GROUPS / f"ray_canal_bench_{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no CPU control groups (cgroup v1) here: {error}"
    return ""


@contextlib.contextmanager
def _group(name: str) -> Iterator[Path]:
    folder = _CPU_GROUPS / name
    folder.mkdir()
    try:
        (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
        (folder / "cpu.cfs_quota_us").write_text(
            str(int(_PERIOD_US * NODE_CORES)), encoding="ascii"
        )
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path, timeout_s: float = 15.0) -> None:
    """A control group can go when its last process has."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)


def _limit_decoders() -> None:
    """Put each worker that is seen decoding into its node's group; the other actors' processes,
    which Ray may place on any node, keep the machine's cores."""
    seen: set[int] = set()
    while True:
        for pid in with_title(DECODING) - seen:
            seen.add(pid)
            group = _groups.get(environment_of(pid).get(NODE, ""))
            if group is not None:
                with contextlib.suppress(OSError):  # it has ended
                    (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        time.sleep(_WATCH_S)
