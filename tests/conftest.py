"""Fixtures for every test, one file per concern; see fixture_*.py."""

from __future__ import annotations

import os

import hypothesis  # noqa: F401  (its plugin does so at the end else: too late where a test froze gc)
import pytest

pytest_plugins = [
    "tests.fixture_servers",
    "tests.fixture_ray",
    "tests.fixture_canal_python",
    "tests.fixture_browser",
    "tests.fixture_sinks",
    "tests.fixture_disk",
]


def pytest_configure() -> None:
    """Give each of several workers a Ray of its own: in one folder, each would find the others'."""
    worker, folder = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("RAY_TMPDIR")
    if worker and folder:
        os.environ["RAY_TMPDIR"] = os.path.join(folder, worker)
        os.makedirs(os.environ["RAY_TMPDIR"], exist_ok=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session's Ray: such tests run one after the other. A test that errs, as by
    a time limit on a busy machine, runs once more; wrong rows, an AssertionError, fail at once. One
    that measures time proves by one run of three what the code can do; others tell of the machine.
    """
    for item in items:
        if "local_ray" in getattr(item, "fixturenames", ()):
            item.add_marker("ray")
        timed = item.get_closest_marker("timed") is not None
        again = {"reruns": 2} if timed else {"reruns": 1, "rerun_except": ["AssertionError"]}
        item.add_marker(pytest.mark.flaky(**again))
