"""Unit tests know no Ray: a test that starts one fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest


@pytest.fixture(scope="module", autouse=True)
def ray_is_forbidden() -> Iterator[None]:
    """`ray.init`, called or implied, raises while unit tests run."""
    import ray

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise AssertionError("a unit test must not start Ray; it belongs in tests/integration")

    patch = pytest.MonkeyPatch()
    patch.setattr(ray, "init", refuse)
    yield
    patch.undo()
