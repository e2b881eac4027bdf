"""The cache of compiled kernels is found by a copy of the sources at another path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import ray_canal
from ray_canal.cache_folder import CACHE_VARIABLE
from ray_canal.kernels.base import crc, jit

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


NO_ROOM = """
import logging, resource, sys
import numpy as np
from ray_canal.kernels.base import crc, jit
logging.basicConfig(format="%(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(crc.crc32(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF43926)
jit.kernel(lambda number: number + 1)(1)
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
        for module in ("cache_folder.py", "private_folder.py"):
            shutil.copy(package / module, target)
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


def test_a_disk_without_room_costs_a_kernel_its_place_alone(tmp_path: Path) -> None:
    """Saving it raised in the midst of the first call, which ended the destination."""
    sources = Path(ray_canal.__file__).parents[1]
    told = " ".join(run(sources, tmp_path, NO_ROOM))
    assert told.count("cannot be kept") == 1
    assert f"{tmp_path}/kernels/{jit.cache_key()}: File too large; each process compiles" in told
    assert told.endswith(" True")


def test_kernels_in_a_folder_that_is_read_only_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of an image: each process compiled them again."""
    compiled = run(Path(ray_canal.__file__).parents[1], tmp_path)[1]
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", Mock(side_effect=PermissionError))
    assert jit.cache_directory.__wrapped__() == Path(compiled)
    monkeypatch.setattr(jit, "cache_directory", lambda: Path(compiled))
    dispatcher = jit.kernel(crc.crc32.py_func)
    dispatcher(np.frombuffer(b"123456789", np.uint8), 0, 9)
    assert sum(dispatcher.stats.cache_hits.values()) == 1


def test_key_is_stable() -> None:
    assert jit.cache_key() == jit.cache_key()
    assert len(jit.cache_key()) == 32


def test_no_thread_can_meet_numpy_half_loaded(tmp_path: Path) -> None:
    # Two threads that call their first kernels met while numpy.ma was loaded: RecursionError.
    sources = Path(ray_canal.__file__).parents[1]
    assert run(sources, tmp_path, LOADED) == ["False", "True"]
