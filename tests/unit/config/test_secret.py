"""Secrets are read where they are used, from the environment or a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal import config
from ray_canal.errors import ConfigError


def test_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANAL_TEST_SECRET", "s3cret")
    (tmp_path / "password").write_text("from file\n")
    assert config.secret("env:CANAL_TEST_SECRET") == "s3cret"
    assert config.secret(f"file:{tmp_path / 'password'}") == "from file"
    assert config.secret("plain") == "plain"
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        config.secret("env:NO_SUCH_VARIABLE")
    with pytest.raises(ConfigError, match="cannot read secret file"):
        config.secret("file:/nowhere")
    (tmp_path / "password").write_bytes(b"s\xe9cret")
    with pytest.raises(ConfigError, match="password is not UTF-8") as caught:
        config.secret(f"file:{tmp_path / 'password'}")
    assert "0xe9" not in str(caught.value)
