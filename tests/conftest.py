"""Fixtures for every test, one file per concern; see fixture_*.py."""

from __future__ import annotations

import pytest

pytest_plugins = [
    "tests.fixture_servers",
    "tests.fixture_ray",
    "tests.fixture_canal_python",
    "tests.fixture_browser",
    "tests.fixture_sinks",
]


_REAL_PARTS = ("tests/integration", "tests/spark", "tests/fault", "tests/test_docs.py")
"""Where tests use servers, Ray or Spark: processes that answer late on a busy machine."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses the session's Ray: such tests run one after the other. What uses real parts is
    run once more after an error; wrong rows, which are an AssertionError, fail at once."""
    real_parts = tuple(str(config.rootpath / each) for each in _REAL_PARTS)
    for item in items:
        if "local_ray" in getattr(item, "fixturenames", ()):
            item.add_marker("ray")
        if str(item.path).startswith(real_parts):
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=["AssertionError"]))
