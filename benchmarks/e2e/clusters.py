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


@contextlib.contextmanager
def running(shape: str) -> Iterator[None]:
    """A cluster that this process is connected to; its address is told."""
    import ray

    if shape.isdigit():
        with _decoder_nodes(int(shape)):
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


@contextlib.contextmanager
def _decoder_nodes(count: int) -> Iterator[None]:
    import ray
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False)
    with contextlib.ExitStack() as stack:
        for number in range(count):
            cluster.add_node(
                num_cpus=1, object_store_memory=256 << 20, env_vars={NODE: str(number)}
            )
        _warm_nodes(count)
        groups = {
            str(number): stack.enter_context(_group(f"ray_canal_bench_{os.getpid()}_{number}"))
            for number in range(count)
        }
        watch = threading.Thread(target=_limit_decoders, args=(groups,), daemon=True)
        watch.start()
        yield
        ray.shutdown()
        cluster.shutdown()


def _warm_nodes(count: int) -> None:
    """Load the kernels into a worker of each node."""
    import ray

    from ray_canal.warm import warm

    loading = ray.remote(warm).options(num_cpus=1, scheduling_strategy="SPREAD")
    ray.get([loading.remote() for _ in range(count)])


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


def _limit_decoders(groups: dict[str, Path]) -> None:
    """Put each worker that is seen decoding into its node's group; the other actors' processes,
    which Ray may place on any node, keep the machine's cores."""
    seen: set[int] = set()
    while True:
        for pid in with_title(DECODING) - seen:
            seen.add(pid)
            group = groups.get(environment_of(pid).get(NODE, ""))
            if group is not None:
                with contextlib.suppress(OSError):  # it has ended
                    (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        time.sleep(_WATCH_S)
