"""Commits on a real disk, the writer dead at each of its steps."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from ray_canal.errors import CanalError, ConfigError
from ray_canal.spark.commits import Commit, Commits, last_commit, staged, unfinished
from ray_canal.views.row_places import RowPlace
from tests.spark.faulty_files import FaultyFiles, Killed

TABLES = ("shop.a", "shop.b")


class LocalFiles:
    """The port over a local folder; `move` refuses a target that exists, as HDFS does."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def names(self, folder: str) -> list[str]:
        at = self.root / folder
        return sorted(os.listdir(at)) if at.exists() else []

    def below(self, folder: str) -> list[str]:
        at = self.root / folder
        return sorted(str(p.relative_to(at)) for p in at.rglob("*") if p.is_file())

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        with (self.root / path).open("xb") as file:
            file.write(data)

    def move(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileExistsError(target)
        (self.root / target).parent.mkdir(parents=True, exist_ok=True)
        os.rename(self.root / source, self.root / target)

    def delete(self, path: str) -> None:
        at = self.root / path
        shutil.rmtree(at) if at.is_dir() else at.unlink(missing_ok=True)


def write_rows(commits: Commits, files: LocalFiles | FaultyFiles, first: int, end: int) -> None:
    """What a sink does with rows [first, end): those that are not written yet, a file a table."""
    written = {table: at.row for table, at in commits.last.last.items()}
    commit = commits.begin()
    moves, last = [], dict(commits.last.last)
    for table in TABLES:
        rows = [row for row in range(first, end) if row > written.get(table, -1)]
        if rows:
            files.write(f"{commit.staging}/{table}.parquet", repr(rows).encode())
            last[table] = RowPlace(0, 1, 4, rows[-1])
    if last == commits.last.last:
        return
    for path in staged(files, commit):
        moves.append((f"{commit.staging}/{path}", f"{path[:-8]}/{commit.number:03d}.parquet"))
    commits.commit(Commit(commit.number, commit.attempt, tuple(moves), last))


def rows_of(files: LocalFiles, table: str) -> list[int]:
    return [row for name in files.below(table) for row in eval(files.read(f"{table}/{name}"))]


def committed_only(files: LocalFiles) -> None:
    """Rows [0, 3) by a writer that dies when they are committed and no file is in its place."""
    faulty = FaultyFiles(files, -1)
    commits = Commits(faulty)
    commits.open()
    faulty.after, faulty.call = True, "move"
    with pytest.raises(Killed):
        write_rows(commits, faulty, 0, 3)


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_step_each_row_is_there_once(tmp_path: Path, after: bool) -> None:
    """A2: whatever step of a commit fails, done or not, the next writer has each row once."""
    for step in range(100):
        files = LocalFiles(tmp_path / f"{step}")
        commits = Commits(files)
        commits.open()
        write_rows(commits, files, 0, 3)
        faulty = FaultyFiles(files, step, after)
        commits = Commits(faulty)
        try:
            commits.open()
            write_rows(commits, faulty, 3, 7)
        except Killed:
            pass
        seen = {table: rows_of(files, table) for table in TABLES}
        assert all(rows == list(range(len(rows))) for rows in seen.values())
        commits = Commits(files)  # a new process, and the batches are cut again
        commits.open()
        for first, end in ((0, 5), (5, 9)):
            write_rows(commits, files, first, end)
        for table in TABLES:
            rows = rows_of(files, table)
            assert rows == list(range(9)), (step, faulty.calls)
            assert rows[: len(seen[table])] == seen[table]  # what was seen stays
        assert files.names("_ray_canal/staging") == []
        if not faulty.has_failed:
            assert step > 10
            return
    raise AssertionError("more steps than there can be")


def test_recovery_may_be_killed_too(tmp_path: Path) -> None:
    """A2: a writer that dies while it moves what another had committed."""
    for step in range(100):
        files = LocalFiles(tmp_path / f"{step}")
        committed_only(files)
        faulty = FaultyFiles(files, step)
        with contextlib.suppress(Killed):
            Commits(faulty).open()
        Commits(files).open()
        assert [rows_of(files, table) for table in TABLES] == [[0, 1, 2]] * 2
        if not faulty.has_failed:
            return


def test_a_reader_knows_what_is_not_whole(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    assert last_commit(files) is None
    committed_only(files)
    newest = last_commit(files)
    assert newest is not None
    assert newest.last["shop.a"].key == (0, 1, 4, 2)
    mine, both = "shop.a/001.parquet", {"shop.a/001.parquet", "shop.b/001.parquet"}
    assert unfinished(files, [], "shop.a") == both
    commits = Commits(files)
    commits.open()
    assert unfinished(files, [mine], "shop.a") == frozenset()
    # It was listed before its last file came, and the next commit was done then.
    assert unfinished(files, [], "shop.a") == both
    write_rows(commits, files, 3, 5)
    assert mine in unfinished(files, ["shop.a/002.parquet"], "shop.a")
    files.delete(mine)  # by hand, later
    assert unfinished(files, ["shop.a/002.parquet"], "shop.a") == frozenset()


def test_another_writer_is_noticed(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    mine, other = Commits(files), Commits(files)
    mine.open()
    other.open()
    write_rows(other, files, 0, 3)
    with pytest.raises(CanalError, match="another sink writes to this folder"):
        write_rows(mine, files, 0, 3)
    assert rows_of(files, "shop.a") == [0, 1, 2]


def test_files_of_unknown_origin_are_refused(tmp_path: Path) -> None:
    (tmp_path / "schema_name=shop").mkdir()
    with pytest.raises(ConfigError, match="write to another folder"):
        Commits(LocalFiles(tmp_path)).open()


def test_a_committed_file_that_is_gone_is_told(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    commits = Commits(files)
    commits.open()
    write_rows(commits, files, 0, 3)
    files.delete("shop.a/001.parquet")
    Commits(files).open()  # it was whole: what somebody tidies up later is not the sink's
    write_rows(commits, files, 3, 4)
    committed = LocalFiles(tmp_path / "other")
    committed_only(committed)
    newest = last_commit(committed)
    assert newest is not None
    committed.delete(newest.moves[0][0])
    with pytest.raises(CanalError, match="it was removed"):
        Commits(committed).open()


def test_only_the_last_commits_are_kept(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    commits = Commits(files)
    commits.open()
    for first in range(5):
        write_rows(commits, files, first, first + 1)
    assert files.names("_ray_canal/commits") == [f"{n:020d}.json" for n in (4, 5)]
