"""Commits of a folder of Parquet files: each batch whole or not at all, each row once.

Files are staged under a folder of the attempt's own. A commit is one small file that appears whole,
by a rename: it names the staged files and where each belongs, and of each table the last row that
was written. What was committed and not yet moved is moved by whoever opens the folder next; what
was staged and not committed is removed. So a reader of the tables' folders sees committed files
only, each row once, and who writes knows which rows are there already, however batches are cut.

    _ray_canal/staging/ATTEMPT/…            not committed yet, or not moved yet
    _ray_canal/commits/NUMBER.json          the last two commits

The file system is a port, with what local disks, HDFS and object stores have in common.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from ray_canal.errors import CanalError, ConfigError
from ray_canal.model.savepoints import UndoneRows
from ray_canal.spark.prepared import Named, Prepared, Undone
from ray_canal.views.row_places import RowPlace

OWN_FOLDER = "_ray_canal"
"""Spark passes over names that begin with an underscore."""
_COMMITS, _STAGING = f"{OWN_FOLDER}/commits", f"{OWN_FOLDER}/staging"
_NUMBER = re.compile(r"(\d{20})\.json\Z")
_FORMAT = 1
_KEPT = 2


class Files(Protocol):
    """A file system below one folder; paths are relative to it, with slashes."""

    def exists(self, path: str) -> bool:
        """Return whether there is such a file."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return what a folder has directly; empty if there is no such folder."""
        ...

    def below(self, folder: str) -> list[str]:
        """Paths of all files at any depth, relative to the folder."""
        ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None:
        """Make a new file, and the folders above it."""
        ...

    def move(self, source: str, target: str) -> None:
        """Rename a file; folders above the target are made. Raises OSError: the target exists, or
        it was not done."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing if it is not there."""
        ...


@dataclass(frozen=True)
class Commit:
    """One batch. `moves`: staged file and its place, both relative to the sink's folder. `last`: of
    each table that was ever written, its last row. `counts` are the batch's changes by table and
    event type. `prepared`: which XA transactions do not count (spark/prepared.py)."""

    number: int
    attempt: str = ""
    moves: tuple[tuple[str, str], ...] = ()
    last: dict[str, RowPlace] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    prepared: Prepared = field(default_factory=Prepared)

    @property
    def staging(self) -> str:
        """Return the attempt's own folder, which goes when all files are in their places."""
        return f"{_STAGING}/{self.attempt or 'none'}"

    def packed(self) -> bytes:
        """Return it as the bytes of its file."""
        body = {
            "format": _FORMAT,
            "number": self.number,
            "attempt": self.attempt,
            "moves": self.moves,
            "last": self.last,
            "counts": self.counts,
            "prepared": {
                "open": self.prepared.open,
                "gone": sorted(self.prepared.gone, key=str),
                "undone": sorted(self.prepared.undone),
            },
        }
        return json.dumps(body, separators=(",", ":")).encode()


def _unpacked(data: bytes) -> Commit:
    body: dict[str, Any] = json.loads(data)
    if body["format"] != _FORMAT:
        raise ConfigError(
            f"the commits of this folder have format {body['format']}; this version writes "
            f"{_FORMAT}: write to another folder"
        )
    return Commit(
        body["number"],
        body["attempt"],
        tuple((source, target) for source, target in body["moves"]),
        {table: RowPlace(*place) for table, place in body["last"].items()},
        body["counts"],
        _prepared(body.get("prepared", {"open": {}, "gone": []})),
    )


def last_commit(files: Files) -> Commit | None:
    """The newest one; None: there is none yet."""
    numbers = _numbers(files)
    return _unpacked(files.read(_path(numbers[-1]))) if numbers else None


def unfinished(files: Files, listed: Collection[str], folder: str) -> frozenset[str]:
    """Files of commits that are not all in their places yet, or came there while a reader listed
    `folder` (`listed`: its files): a reader that lists first and asks then passes over them."""
    found = set[str]()
    for path in map(_path, _numbers(files)):
        if not files.exists(path):
            continue  # cleared meanwhile: two more commits are done
        commit = _unpacked(files.read(path))
        targets = {target for _, target in commit.moves}
        late = {each for each in targets if each.startswith(f"{folder}/")} - set(listed)
        if files.exists(commit.staging) or any(map(files.exists, late)):
            found |= targets
    return frozenset(found)


class Commits:
    """The commits of one folder, by their only writer."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.last = Commit(0)

    def open(self) -> None:
        """Take up where the last writer was: move what it had committed, remove what it had not.

        Raises ConfigError: there are Parquet files that no commit tells of; CanalError: a committed
        file is gone."""
        files = self._files
        found = last_commit(files)
        if found is None:
            self._refuse_others()
        self.last = found or Commit(0)
        if files.exists(self.last.staging):
            self._finish(self.last)
        for attempt in files.names(_STAGING):
            files.delete(f"{_STAGING}/{attempt}")
        self._clear_commits()

    def _finish(self, commit: Commit) -> None:
        files = self._files
        for source, target in commit.moves:
            if not files.exists(source):
                if not files.exists(target):
                    raise CanalError(
                        f"commit {commit.number} has a file {target}, which is neither there nor "
                        f"in {source}: it was removed"
                    )
            elif files.exists(target):  # moved by copying, and not removed yet
                files.delete(source)
            else:
                files.move(source, target)
        files.delete(commit.staging)

    def _refuse_others(self) -> None:
        for name in self._files.names("."):
            if name.startswith("schema_name="):
                raise ConfigError(
                    f"{name} is there, but no commits ({_COMMITS}): files of another writer, of "
                    "which it is not known what they hold; write to another folder"
                )

    def begin(self) -> Commit:
        """The next commit, with a staging folder of its own."""
        return Commit(self.last.number + 1, uuid.uuid4().hex)

    def commit(self, commit: Commit) -> None:
        """Make it durable, then move its files to their places. Raises CanalError: another writer
        was faster; OSError kinds. After an error it is not known whether it is done: `open` tells.
        """
        files, path = self._files, _path(commit.number)
        prepared = f"{commit.staging}/commit.json"
        files.write(prepared, commit.packed())
        if files.exists(path):
            raise CanalError(
                f"commit {commit.number} is there already: another sink writes to this folder"
            )
        files.move(prepared, path)
        self.last = commit
        for source, target in commit.moves:
            files.move(source, target)
        files.delete(commit.staging)
        self._clear_commits()

    def _clear_commits(self) -> None:
        for number in _numbers(self._files)[:-_KEPT]:
            self._files.delete(_path(number))


def staged(files: Files, commit: Commit) -> list[str]:
    """The Parquet files that were staged for a commit, relative to its staging folder, in order;
    without what tasks of Spark that failed have left."""
    return sorted(
        path
        for path in files.below(commit.staging)
        if path.endswith(".parquet") and not any(p[0] in "_." for p in path.split("/"))
    )


def _numbers(files: Files) -> list[int]:
    found = (_NUMBER.match(name) for name in files.names(_COMMITS))
    return sorted(int(match[1]) for match in found if match)


def _path(number: int) -> str:
    return f"{_COMMITS}/{number:020d}.json"


def _prepared(body: Any) -> Prepared:
    waiting = {xa_id: Named(*named) for xa_id, named in body["open"].items()}
    undone = {
        Undone(timeline, transaction, UndoneRows(*rows))
        for timeline, transaction, rows in body.get("undone", ())  # earlier versions have none
    }
    return Prepared(waiting, {Named(*named) for named in body["gone"]}, undone)
