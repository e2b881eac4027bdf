"""Folders of logs on disk: ours alone, and removed only where they are."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.log import spill_folder
from ray_canal.log.spill_folder import FOLDER, MARKER, SpillFolder, root_of


def _config(name: str, spill_path: str = "") -> InstanceConfig:
    return InstanceConfig.model_validate(
        {"destination": name, "source": {"files": ["x"]}, "store": {"spill_path": spill_path}}
    )


def _left_behind(path: Path) -> None:
    """A life whose process is gone, with a segment."""
    code = (
        "import os, sys; from ray_canal.log.spill_folder import SpillFolder\n"
        "os.close(SpillFolder(sys.argv[1]).create('000001.segment')); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    assert (path / "000001.segment").exists()


def test_a_users_folders_are_never_touched(tmp_path: Path) -> None:
    """C5: spill_path = /data and a destination "mysql" leave /data/mysql alone."""
    data = tmp_path / "data"
    (data / "mysql").mkdir(parents=True)
    (data / "mysql" / "ibdata1").write_text("x")
    folder = root_of(_config("mysql", str(data)), MetaConfig()) / "mysql"
    assert folder == data / FOLDER / "mysql"
    spill_folder.sweep(folder)
    life = SpillFolder(folder / "one")
    os.close(life.create("000001.segment"))
    life.close()
    spill_folder.sweep(folder)
    assert (data / "mysql" / "ibdata1").read_text() == "x"


def test_only_what_has_our_mark_is_removed(tmp_path: Path) -> None:
    """C5: a folder, a link or a file that stands where a life would stays as it is."""
    folder = tmp_path / "spill" / "x"
    _left_behind(folder / "over")
    (folder / "bare").mkdir()
    (folder / "bare" / "000001.segment").write_text("whose?")
    (folder / "forged").mkdir()
    (folder / "forged" / MARKER).write_text("something else")
    (folder / "file").write_text("x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / MARKER).write_bytes((folder / "over" / MARKER).read_bytes())
    (folder / "link").symlink_to(elsewhere)
    _left_behind(folder / "more")
    (folder / "more" / "notes.txt").write_text("kept")
    spill_folder.sweep(folder)
    for path in folder.iterdir():
        spill_folder.remove(path)
    assert {path.name for path in folder.iterdir()} == {"bare", "forged", "file", "link", "more"}
    assert (folder / "bare" / "000001.segment").exists()
    assert (elsewhere / MARKER).exists()
    assert (folder / "more" / "notes.txt").read_text() == "kept"
    assert not (folder / "more" / "000001.segment").exists()


def test_what_another_life_left_goes_and_what_it_uses_stays(tmp_path: Path) -> None:
    """C6: two deployments with one folder and one name do not empty each other's."""
    folder = tmp_path / "spill" / "x"
    _left_behind(folder / "over")
    one = SpillFolder(folder / "one")
    os.close(one.create("000001.segment"))
    assert not (folder / "over").exists()
    two = SpillFolder(folder / "two")
    spill_folder.sweep(folder)
    os.close(one.create("000002.segment"))
    assert len(list((folder / "one").iterdir())) == 3
    two.close()
    two.close()
    assert [path.name for path in folder.iterdir()] == ["one"]
    spill_folder.remove(folder / "one")  # its process was killed
    assert list(folder.iterdir()) == []
    one.close()


def test_a_disk_that_is_full_as_the_folder_is_made(tmp_path: Path) -> None:
    """B2: the next try makes it, as soon as there is room; it does not stay refused."""
    code = (
        "import resource, sys; from ray_canal.log.spill_folder import SpillFolder\n"
        "limits = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))\n"
        "try: SpillFolder(sys.argv[1])\n"
        "except OSError as error: print(error.errno)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, limits)\n"
        "SpillFolder(sys.argv[1]).close()"
    )
    life = tmp_path / "root" / "d" / "one"
    command = [sys.executable, "-c", code, str(life)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{errno.EFBIG}\n"), done.stderr
    assert not life.exists()


def test_folders_are_for_their_user_alone(tmp_path: Path) -> None:
    """C6: 0700, also where a folder is there with more."""
    (tmp_path / "spill").mkdir(mode=0o755)
    SpillFolder(tmp_path / "spill" / "x" / "one")
    for path in ("spill", "spill/x", "spill/x/one"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o700


@pytest.mark.parametrize("place", ["spill", "spill/x", "spill/x/one"])
def test_a_way_that_leads_elsewhere_is_refused(tmp_path: Path, place: str) -> None:
    """C6: nobody can lead what is written to a place of theirs."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="a folder of its own"):
        SpillFolder(tmp_path / "spill" / "x" / "one")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("place", ["spill", "spill/x", "spill/x/one"])
def test_somebody_elses_folder_is_refused(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C6: the first one to make a folder in /tmp gets no rows into it."""
    SpillFolder(tmp_path / "spill" / "x" / "one")
    me = os.geteuid()
    if me == 0:
        os.chown(tmp_path / place, 4711, -1)
    else:  # pragma: no cover
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(PermissionError, match="belongs to user"):
        SpillFolder(tmp_path / "spill" / "x" / "one")


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert root_of(_config("x"), MetaConfig(path=str(tmp_path / "meta.db"))) == (
        tmp_path / "meta.spill"
    )
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    redis = MetaConfig(backend="redis", address="db:1")
    assert root_of(_config("x"), redis) == tmp_path / f"ray_canal-{os.geteuid()}.spill"
    assert root_of(_config("x", "spill"), redis) == Path("spill").absolute() / FOLDER
