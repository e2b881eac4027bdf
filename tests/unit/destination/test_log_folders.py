"""Folders of logs on disk: each log has its own, those of earlier lives are removed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.destination import log_folders
from ray_canal.destination.log_folders import LogFolders
from tests.local_destination import instance, run

META = MetaConfig(path="meta.db")
_DYING = """
import os, sys
from ray_canal.log.spill_folder import SpillFolder
SpillFolder(sys.argv[1]).create("000001.segment")
os._exit(0)
"""


def test_each_log_has_a_folder_of_its_own(tmp_path: Path) -> None:
    config = instance(store={"spill_path": str(tmp_path)})
    folders = LogFolders(config, META)
    paths = {folders.new() for _ in range(100)}
    assert len(paths) == 100
    (parent,) = {Path(path).parent for path in paths}
    assert parent.is_relative_to(tmp_path)
    assert parent.name == config.destination


def test_folders_of_earlier_lives_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(log_folders, "_ENDING_S", 0.0)
        config = instance(store={"spill_path": str(tmp_path)})
        path = LogFolders(config, META).new()
        subprocess.run([sys.executable, "-c", _DYING, path], check=True, timeout=60)
        assert len(list(tmp_path.rglob("*.segment"))) == 1
        await asyncio.wait_for(LogFolders(config, META).sweep(), 10)
        assert not list(tmp_path.rglob("*.segment"))

    run(story())
