"""Fixture: one local Ray per test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def local_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Ray of this process with 3 CPUs (so that decode tasks find a slot) and a small object
    store."""
    import ray

    from ray_canal.spark import provide_java

    provide_java()  # before Ray starts: its workers inherit the PATH
    ray.init(
        num_cpus=3,
        include_dashboard=False,
        object_store_memory=600 << 20,
        _system_config={"metrics_report_interval_ms": 2000},  # 10 s else, which tests would wait
    )
    yield
    ray.shutdown()
