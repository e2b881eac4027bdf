"""A folder that nobody else could have made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_canal.private_folder import private_folder


def test_its_owner_alone_may_enter_it(tmp_path: Path) -> None:
    folder = private_folder(tmp_path, "mine")
    assert folder == tmp_path / f"mine-{os.geteuid()}"
    folder.chmod(0o755)
    assert private_folder(tmp_path, "mine").stat().st_mode & 0o777 == 0o700


def test_another_users_folder_a_link_and_a_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"link-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"file-{os.geteuid()}").touch()
    for name in ("link", "file"):
        with pytest.raises(OSError, match=r"belongs to somebody else|File exists"):
            private_folder(tmp_path, name)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError, match=r"theirs-12345 belongs to somebody else"):
        private_folder(tmp_path, "theirs")
