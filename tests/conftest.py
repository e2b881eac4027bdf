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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session's Ray: such tests run one after the other."""
    for item in items:
        if "local_ray" in getattr(item, "fixturenames", ()):
            item.add_marker("ray")
