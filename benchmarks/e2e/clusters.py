"""Ray clusters for the child that has them: a plain one, one for Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benchmarks.e2e.peers.saying import say

_STORE_BYTES = 1 << 30


@contextlib.contextmanager
def running(shape: str) -> Iterator[None]:
    """A cluster that this process is connected to; its address is told."""
    import ray

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
