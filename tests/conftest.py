"""Fixtures for every test, one file per concern; see fixture_*.py."""

from __future__ import annotations

pytest_plugins = [
    "tests.fixture_servers",
    "tests.fixture_ray",
    "tests.fixture_canal_python",
    "tests.fixture_in_process",
]
