"""The kernels with bounds checks take minutes to compile when they are new: fuzzing them goes on
beside other tests, when these leave the machine time. (Not with xdist: each worker would fuzz.)"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

HERE = Path(__file__).parent
INPUTS = 20_000

_fuzzing = pytest.StashKey[tuple[subprocess.Popen[bytes], IO[bytes]]]()


def _is_fuzz(item: pytest.Item) -> bool:
    return HERE in item.path.parents


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last, when what goes on beside them has had the most time."""
    items.sort(key=_is_fuzz)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly or not any(map(_is_fuzz, session.items)):
        return
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", str(INPUTS), "--seed", "1"]
    told = tempfile.TemporaryFile()  # noqa: SIM115, it is read by a fixture
    process = subprocess.Popen(
        # Ray gives its workers niceness 15: the lowest one would still take a third from them.
        ["chrt", "--idle", "0", *command, "--jobs", "1"],
        cwd=HERE.parents[1],
        start_new_session=True,  # with its worker
        stdout=told,
        stderr=told,
    )
    session.config.stash[_fuzzing] = process, told


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _fuzzing not in session.config.stash:
        return
    process, told = session.config.stash[_fuzzing]
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    told.close()


@pytest.fixture
def fuzzed(request: pytest.FixtureRequest) -> tuple[int, str]:
    """The exit code of fuzzing with bounds checks, and what it printed."""
    process, told = request.config.stash[_fuzzing]
    code = process.wait()
    told.seek(0)
    return code, told.read().decode()
