"""A log's chunks in Ray's object store: one copy in, none out, and the same memory again and again.

Both programs run in one process of their own, with a Ray of its own, whatever else runs here.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ray

_RAY = """
import ray
from ray_canal.actors.ray_settings import use_ray_settings

use_ray_settings()
ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=512 << 20)
"""


_CHUNKS = """
import time
from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.source.open_source import open_source
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
import dataclasses
import numpy as np

given = {"destination": "x", "source": {"files": [str(binlog_files()[0])]}}
source = open_source(InstanceConfig.model_validate(given))
source.open(None)
_, chunk = EventParser(SchemaRegistry()).decode_chunk(source.read(0.0, 0.0))
room = np.arange((8 << 20) + 12_345, dtype=np.uint64).view(np.uint8)[: (8 << 20) + 12_345]
room[: chunk.arena.size] = chunk.arena
chunk = dataclasses.replace(chunk, arena=room)
places = set()
for _ in range(40):
    reference = ray.put(chunk)
    found = ray.get(reference)
    assert found.arena.base is not None and not found.arena.flags.writeable, "a copy"
    assert found.layout == chunk.layout and (found.arena == chunk.arena).all()
    places.add(found.arena.__array_interface__["data"][0])
    del found, reference
    time.sleep(0.03)
print(len(places), "places")
"""


_LENT = """
import time
import numpy as np
from ray.exceptions import ObjectLostError, OwnerDiedError
from ray_canal.actors.ray_internals import untracked, reference_of

@ray.remote(num_cpus=0)
class Owner:
    def put(self, start):
        self.references = [ray.put(np.arange(start, start + (1 << 20)))]
        return untracked(self.references[0])

    def let_go(self):
        self.references.clear()

owner = Owner.remote()
reference = reference_of(ray.get(owner.put.remote(7)))
held = ray.get(reference)
ray.get(owner.let_go.remote())
for k in range(80):  # more than there is room for
    ray.get(reference_of(ray.get(owner.put.remote(k))))
    ray.get(owner.let_go.remote())
assert (held == np.arange(7, 7 + (1 << 20))).all(), "what was read has been written over"
in_vain = reference_of(ray.get(owner.put.remote(9)))
ray.get(owner.let_go.remote())
time.sleep(1.0)
try:
    ray.get(in_vain, timeout=60.0)
    raise SystemExit("a reference here kept it")
except ObjectLostError:
    pass
last = reference_of(ray.get(owner.put.remote(11)))
ray.kill(owner)
time.sleep(1.0)
try:
    ray.get(last, timeout=60.0)
    raise SystemExit("its owner has ended")
except OwnerDiedError:
    print("as told")
"""


@pytest.fixture(scope="module")
def told() -> list[str]:
    """What both say."""
    done = subprocess.run(
        [sys.executable, "-c", _RAY + _CHUNKS + _LENT],
        env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_what_is_lent_can_be_read_as_long_as_its_owner_has_it(told: list[str]) -> None:
    assert told[-1] == "as told"


def test_chunks_lie_in_the_same_memory_again_and_again(told: list[str]) -> None:
    (places,) = (line for line in told if line.endswith(" places"))
    assert int(places.split()[0]) < 12  # 27 and more were seen where Ray frees once a second
