"""The cache of compiled kernels is found by a copy of the sources at another path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ray_canal
from ray_canal.kernels.base import jit

CODE = """
import numpy as np
from ray_canal.kernels.base import crc
from ray_canal.kernels.base import jit
print(crc.crc32(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF43926)
print(jit.cache_directory())
print(sum(crc.crc32.stats.cache_hits.values()))
"""

LOADED = """
import numpy as np
before = "ma" in vars(np)
from ray_canal.kernels.base import jit
print(before, "ma" in vars(np))
"""

LINKED = """
import numpy as np
from ray_canal.kernels.base import crc
from ray_canal.kernels.base import jit
data = np.frombuffer(b"123456789", np.uint8)
found = crc.crc32(data, 0, 9)
def parsed():
    libraries = [each.library for each in crc.crc32.overloads.values()]
    return sum(each._shared_module is not None for each in libraries)
before = parsed()
@jit.without_refcounts
def added(data):
    return crc.crc32(data, 0, 9) + 1
print(sum(crc.crc32.stats.cache_hits.values()), before, added(data) - found)
print(parsed())
"""


def run(sources: Path, cache: Path, code: str = CODE) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(sources), "RAY_CANAL_CACHE_DIR": str(cache)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=sources, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_copy_finds_the_cache(tmp_path: Path) -> None:
    package = Path(ray_canal.__file__).parent
    for name in ("one", "two"):
        target = tmp_path / name / "ray_canal"
        shutil.copytree(package / "kernels", target / "kernels")
        (target / "__init__.py").touch()
    good, where, hits = run(tmp_path / "one", tmp_path / "cache")
    assert (good, hits) == ("True", "0")
    assert run(tmp_path / "two", tmp_path / "cache") == ["True", where, "1"]
    changed = tmp_path / "two/ray_canal/kernels/base/crc.py"
    changed.write_text(changed.read_text() + "\n# changed\n")
    assert run(tmp_path / "two", tmp_path / "cache")[1] != where


def test_a_loaded_kernel_is_parsed_when_another_one_is_compiled_with_it(tmp_path: Path) -> None:
    sources = Path(ray_canal.__file__).parents[1]
    run(sources, tmp_path)
    assert run(sources, tmp_path, LINKED) == ["1", "0", "1", "1"]


def test_key_is_stable() -> None:
    assert jit.cache_key() == jit.cache_key()
    assert len(jit.cache_key()) == 32


def test_no_thread_can_meet_numpy_half_loaded(tmp_path: Path) -> None:
    # Two threads that call their first kernels met while numpy.ma was loaded: RecursionError.
    sources = Path(ray_canal.__file__).parents[1]
    assert run(sources, tmp_path, LOADED) == ["False", "True"]
