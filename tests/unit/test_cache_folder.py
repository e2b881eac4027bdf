"""Where kernels and the jar for Spark are kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from ray_canal.cache_folder import CACHE_VARIABLE, cache_folder

UNWRITABLE = "/dev/null/there"


def test_it_is_the_named_one_or_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cache_folder("kernels") == tmp_path / "kernels"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv(CACHE_VARIABLE)
        else:
            monkeypatch.setenv(CACHE_VARIABLE, unset)
        assert cache_folder("spark") == tmp_path / ".cache" / "ray_canal" / "spark"


@pytest.mark.parametrize("named", ["", UNWRITABLE])
def test_who_has_no_home_keeps_it_among_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    """A pod's user: all that it compiled was compiled again by each process, and Spark's source
    ended with 'Permission denied: /nonexistent'."""
    monkeypatch.setenv(CACHE_VARIABLE, named)
    monkeypatch.setenv("HOME", UNWRITABLE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"ray_canal-cache-{os.geteuid()}"
    assert cache_folder("spark") == folder / "spark"
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(tempfile, "tempdir", UNWRITABLE)
    assert cache_folder("spark") == Path(named or f"{UNWRITABLE}/.cache/ray_canal") / "spark"
