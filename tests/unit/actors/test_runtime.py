"""The ground in Ray: what it does without a cluster."""

from __future__ import annotations

import asyncio

import pytest
import ray

from ray_canal.actors.runtime import RayRuntime
from ray_canal.demo import binlog_files
from ray_canal.offline import decode_chunks
from tests.local_destination import instance


@pytest.mark.parametrize(
    ("cpus", "shared", "decoders"), [(2, False, 0), (8, False, 6), (64, False, 16), (64, True, 0)]
)
def test_auto_leaves_cpus_to_others(
    cpus: int, shared: bool, decoders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    resources = {"CPU": float(cpus)}
    monkeypatch.setattr(ray, "cluster_resources", lambda: asked.append(1) or resources)
    assert RayRuntime(shared).decoders(instance(decoders="auto")) == decoders
    assert RayRuntime(shared).decoders(instance(decoders=3)) == 3
    assert bool(asked) is not shared  # the head may be away, and others wait


def test_a_small_chunk_that_came_along_is_loaded_as_it_is() -> None:
    _, chunk = next(iter(decode_chunks(binlog_files()[:1])))
    assert asyncio.run(RayRuntime(True).load(chunk)) is chunk
