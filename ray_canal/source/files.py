"""Binlog files as a source: one, a list, or a directory's, in order, read once or followed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.config import InstanceConfig
from ray_canal.errors import CanalError, ConfigError, CorruptEvent, PositionNotFound
from ray_canal.model.position import (
    BINLOG_START,
    EntryPosition,
    LogPosition,
    SourceIdentity,
    journal_key,
    utc_text,
)
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.binlog_files import MAGIC, check_magic, format_event, list_binlogs
from ray_canal.source.file_ranges import begin_within, format_place
from ray_canal.source.port import Decided, SourceStatus, nothing
from ray_canal.source.start.decision import configured_start
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.reach import lowest_of, too_far_behind

_READ_BYTES = 256 << 10  # stays in the processor's cache until it is walked
_POLL_S = 0.1


class BinlogFiles:
    """Source over local files. See the port (source.py).

    Follow: at the end of the last file it waits for more of it, or for the next file in its
    directory.
    """

    def __init__(self, config: InstanceConfig) -> None:
        self._config = config.source
        self._follow = config.source.follow
        self._chunk_bytes = config.chunk_bytes
        self._given = tuple(Path(name) for name in config.source.files)
        self._identity = SourceIdentity(",".join(str(path.absolute()) for path in self._given))
        self._cutter = self._new_cutter()
        self._paths: list[Path] = []
        self._index = 0
        self._file: FileIO | None = None
        self._received_bytes = 0
        self._interrupted = threading.Event()
        self._finished = False
        self.waited_s = 0.0

    def _new_cutter(self) -> ChunkCutter:
        return ChunkCutter(
            self._chunk_bytes,
            self._config.event_bytes_max,
            contiguous=True,
            skips=self._config.skipped_places,
            on_undecodable=self._config.on_undecodable,
        )

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def identity(self) -> SourceIdentity:
        return self._identity

    def open(self, start: EntryPosition | None) -> EntryPosition:
        """Open the first file (Source.open). Raises PositionNotFound, CorruptEvent,
        UnsupportedEvent."""
        self._close_file()
        self._paths = list_binlogs(self._given)
        self._cutter, self._finished = self._new_cutter(), False
        start = start or self._configured_start()
        names = [path.name for path in self._paths]
        if start.journal_name not in names:
            raise PositionNotFound(
                f"no binlog file {start.journal_name!r} among {names[0]} … {names[-1]} "
                f"({len(names)} files)"
            )
        self._index = names.index(start.journal_name)
        try:
            self._open_file(start.position)
        except CanalError:
            self._close_file()
            raise
        return start

    def resume(
        self,
        cursors: Sequence[LogPosition],
        delivered: str = "",
        decided: Decided = nothing,
        options: StartOptions = ALL_CURSORS,
    ) -> Start:
        """Continue at a cursor (Source.resume). Files belong to no server: a cursor is in the file
        of its name, and its log is the same if that file is where it was."""
        paths = list_binlogs(self._given)
        unattended = None if cursors else options.unattended
        known = [unattended] if unattended is not None else cursors
        is_partial = options.partial or unattended is not None
        failures = tuple(_unusable(cursor.position, paths, is_partial) for cursor in known)
        served = [c for c, failure in zip(known, failures, strict=True) if failure is None]
        if cursors and not served:
            raise next(failure for failure in failures if failure is not None)
        places = [None if f else c.position for c, f in zip(known, failures, strict=True)]
        files = [(path.name, path.stat().st_size) for path in paths]
        behind = too_far_behind(places, files, options.reach_bytes)
        near = [p for p, far in zip(places, behind, strict=True) if p is not None and not far]
        position = self.open(lowest_of(near, files) if near else None)
        how = "saved cursor" if served else self._config.start
        same_log = all(map(self._is_of_these, served)) if served else options.joins
        at = tuple(cursor.position for cursor in cursors)
        start = Start(position, at, False, how, same_log, failures[: len(at)], behind[: len(at)])
        decided(start, self._identity)
        return start

    def _is_of_these(self, cursor: LogPosition) -> bool:
        name = cursor.position.journal_name
        path = next((path.absolute() for path in self._paths if path.name == name), None)
        known = cursor.identity.address.split(",")
        return path is not None and (str(path) in known or str(path.parent) in known)

    def _configured_start(self) -> EntryPosition:
        config = self._config
        if config.start in ("position", "timestamp"):
            log = FilesLog(self._paths, config.skipped_places, config.on_undecodable)
            return configured_start(config, log)
        if config.start in ("earliest", "latest"):  # files are there to be read from the beginning
            return EntryPosition(self._paths[0].name)
        raise ConfigError(f"source.start = {config.start!r}: files cannot be read from there")

    def _open_file(self, position: int = BINLOG_START) -> None:
        path = self._paths[self._index]
        try:
            self._file = file = FileIO(path)
        except OSError as error:
            raise PositionNotFound(f"cannot read {path}: {error.strerror}") from error
        check_magic(path, file.read(len(MAGIC)))
        size = os.fstat(file.fileno()).st_size
        if not BINLOG_START <= position <= size:
            raise PositionNotFound(
                f"position {position} is not in {path}, which has {size} bytes"
            ).at(path.name, position)
        self._cutter.begin_file(path.name, position)
        if position > BINLOG_START:
            limit = self._config.event_bytes_max
            begin_within(self._cutter, file, format_place(path, file, position, limit))
            file.seek(position)

    def read(self, linger_s: float, wait_s: float) -> RawChunk | None:
        deadline = time.monotonic() + wait_s
        while not self._interrupted.is_set() and not self._finished:
            chunk = self._cutter.next()
            if chunk is not None:
                return chunk
            if self._fill():
                continue
            chunk = self._cutter.flush()
            if chunk is not None:
                return chunk
            if self._next_file():
                continue
            left_s = deadline - time.monotonic()
            if self._finished or left_s <= 0:
                return None
            began_s = time.monotonic()
            self._interrupted.wait(min(_POLL_S, left_s))
            self.waited_s += time.monotonic() - began_s
        return None

    def _fill(self) -> bool:
        """Read a piece of the file; False at its present end."""
        assert self._file is not None
        target = self._cutter.reserve(_READ_BYTES)
        count = self._file.readinto(target.data[:_READ_BYTES])
        self._cutter.commit(count or 0, time.time())
        self._received_bytes += count or 0
        return bool(count)

    def _next_file(self) -> bool:
        """Go, at a file's end, to the next one. Without any: finished, unless it is followed."""
        if self._index + 1 == len(self._paths) and self._follow:
            self._paths += self._newer_files()
        if self._index + 1 < len(self._paths):
            if self._fill():  # it grew between its end and its successor's appearance
                return True
            self._refuse_partial()
            self._close_file()
            self._index += 1
            self._open_file()
            return True
        if not self._follow:
            self._refuse_partial()
            self._finished = True
        return False

    def _refuse_partial(self) -> None:
        if self._cutter.partial_bytes:
            raise CorruptEvent(
                f"the file ends inside an event: {self._cutter.partial_bytes} bytes of it are there"
            ).at(self._cutter.journal_name, self._cutter.position)

    def _newer_files(self) -> list[Path]:
        last = self._paths[-1]
        found = [path for path in last.parent.iterdir() if _is_newer(path.name, last.name)]
        found = [path for path in found if path.stat().st_size >= len(MAGIC)]
        return sorted(found, key=lambda path: journal_key(path.name))

    def status(self) -> SourceStatus:
        size = None
        file = self._file
        if file is not None and not file.closed:
            size = os.fstat(file.fileno()).st_size
        return SourceStatus(
            journal_name=self._cutter.journal_name,
            position=self._cutter.position,
            master_position=size,
            last_event_time=self._cutter.last_timestamp,
            received_bytes=self._received_bytes,
        )

    def hurry(self) -> None:
        """Nothing lingers here."""

    def interrupt(self) -> None:
        self._interrupted.set()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self._interrupted.set()
        self._close_file()


def _unusable(
    place: EntryPosition, paths: list[Path], is_partial: bool
) -> PositionNotFound | None:
    """Return why a cursor cannot be read from. Raises it where it must be."""
    try:
        _refuse_absent(place, paths)
    except PositionNotFound as error:
        if not is_partial:
            raise
        return error
    return None


def _refuse_absent(place: EntryPosition, paths: list[Path]) -> None:
    """Raise PositionNotFound if there is no such file, it is too short, or it is not the one that
    was read."""
    path = next((path for path in paths if path.name == place.journal_name), None)
    if path is None:
        raise PositionNotFound(
            f"no binlog file {place.journal_name!r} among {paths[0].name} … {paths[-1].name} "
            f"({len(paths)} files)"
        )
    if place.position > path.stat().st_size:
        raise PositionNotFound(
            f"position {place.position} is not in {path}, which has {path.stat().st_size} bytes"
        ).at(path.name, place.position)
    if not place.created_s:
        return
    with FileIO(path) as file:
        created_s = int.from_bytes(format_event(file)[:4], "little")
    if created_s != place.created_s:
        raise PositionNotFound(
            f"{path} was created {utc_text(created_s)}, and the cursor is in a file of "
            f"that name that was created {utc_text(place.created_s)}; put that one back, or "
            "start with another meta.path"
        ).at(place.journal_name, place.position)


def _is_newer(name: str, than: str) -> bool:
    base, number = journal_key(name)
    last_base, last_number = journal_key(than)
    return base == last_base and number > last_number >= 0
