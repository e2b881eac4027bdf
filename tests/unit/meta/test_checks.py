"""A look at the cursors' backend before a start."""

from __future__ import annotations

from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.meta.checks import check_cursors
from ray_canal.meta.sqlite import SqliteBackend


def test_a_file_that_is_there_will_be_made_or_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "new" / "meta.db"
    config = MetaConfig(path=str(path))
    assert check_cursors(config, "d").ok
    assert not path.parent.exists()  # nothing was made
    path.parent.mkdir()
    backend = SqliteBackend(str(path))
    backend.save("d", backend.acquire("d"), 7, "{}")
    backend.close()
    assert check_cursors(config, "d").detail.endswith(": 1 subscribers")
    path.write_text("no database, and longer than a header of one is: " * 40)
    damaged = check_cursors(config, "d")
    assert not damaged.ok
    assert str(path) in damaged.detail
    below = check_cursors(MetaConfig(path=str(path / "meta.db")), "d")
    assert not below.ok
    assert "cannot be written" in below.detail


def test_a_server_that_is_away() -> None:
    config = MetaConfig(backend="redis", address="127.0.0.1:1", timeout_s=1)
    assert not check_cursors(config, "d").ok
