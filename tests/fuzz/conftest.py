"""The kernels with bounds checks take minutes to compile: they do so beside all other tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKED = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}

_compiling = pytest.StashKey[subprocess.Popen[bytes]]()


def _is_fuzz(item: pytest.Item) -> bool:
    return HERE in item.path.parents


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last, when the compiler has had the most time."""
    items.sort(key=_is_fuzz)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly or not any(map(_is_fuzz, session.items)):
        return
    session.config.stash[_compiling] = subprocess.Popen(
        ["nice", "-n", "19", sys.executable, "-m", "tests.fuzz", "--inputs", "50", "--jobs", "1"],
        cwd=HERE.parents[1],
        env=CHECKED,
        start_new_session=True,  # with its worker
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    compiling = session.config.stash.get(_compiling, None)
    if compiling is not None and compiling.poll() is None:
        os.killpg(compiling.pid, signal.SIGKILL)
        compiling.wait()


@pytest.fixture(scope="session")
def checked_kernels(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process with bounds checks, once its kernels are compiled."""
    request.config.stash[_compiling].wait()
    return CHECKED
