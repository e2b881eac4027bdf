"""A machine's first command says why it takes a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.cache_folder import CACHE_VARIABLE
from ray_canal.cli.first_use import tell_of_first_use
from ray_canal.kernels.base import jit


def test_only_a_machine_without_kernels_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    tell_of_first_use()
    assert str(tmp_path / "kernels") in capsys.readouterr().err
    kept = jit.cache_directory.__wrapped__()
    assert kept.parent == tmp_path / "kernels"
    tell_of_first_use()
    assert capsys.readouterr().err == ""
