"""Where kernels and the jar for Spark are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.cache_folder import CACHE_VARIABLE, cache_folder
from ray_canal.kernels.base import jit


def test_it_is_the_named_one_or_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    for unset in ("", None):
        monkeypatch.setenv("HOME", str(tmp_path))
        if unset is None:
            monkeypatch.delenv(CACHE_VARIABLE)
        else:
            monkeypatch.setenv(CACHE_VARIABLE, unset)
        assert cache_folder() == tmp_path / ".cache" / "ray_canal"
        assert cache_folder() / "kernels" == jit.cache_directory.__wrapped__().parent
