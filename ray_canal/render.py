"""Changes and states as text: JSON lines, status tables, files of decoded entries. For people and
pipes.

Here every row becomes Python objects; nothing in the pipeline does.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import dataclasses
import datetime as dt
import decimal
import errno
import itertools
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

import pyarrow as pa
from rich.table import Table

from ray_canal.client.connector import Connector
from ray_canal.errors import ConfigError, InstanceError
from ray_canal.model.reports import SubscriberReport
from ray_canal.views.presence import PRESENT_OF
from ray_canal.views.row_places import table_name
from ray_canal.views.table_events import RENAMED_FROM, RENAMED_TO, SQL

_POLL_S = 0.5
_NOTES = {"sql": SQL, "renamed_from": RENAMED_FROM, "renamed_to": RENAMED_TO}


def plain(value: Any) -> Any:
    """JSON-able: decimals as text, bytes as base64, times in ISO 8601, durations as
    [-]HH:MM:SS[.ffffff]."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return _duration(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _duration(value: dt.timedelta) -> str:
    micros = round(value / dt.timedelta(microseconds=1))
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, micros = divmod(micros, 1_000_000)
    text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{micros:06d}" if micros else text


def changes(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The changes of a message as JSON-able dicts, in log order across tables."""
    found: list[tuple[tuple[int, int], dict[str, Any]]] = []
    for batch in batches:
        metadata = batch.schema.metadata
        schema, table = (metadata[k].decode() for k in (b"canal.schema", b"canal.table"))
        notes = {name: metadata[key].decode() for name, key in _NOTES.items() if key in metadata}
        for row in batch.to_pylist():
            change = {"schema": schema, "table": table, **plain(without_absent(row)), **notes}
            found.append(((row["position"], row["row"]), change))
    found.sort(key=lambda item: item[0])
    return [change for _, change in found]


def without_absent(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a batch whose images have the columns that the server wrote, no more. Those of which
    it wrote but a change are named in `after_unknown`."""
    row = dict(row)
    for image, name in PRESENT_OF.items():
        present = row.pop(name, None)
        if present is None or row[image] is None:
            continue
        row[image] = {key: value for key, value in row[image].items() if present[key]}
        unknown = [key for key, is_there in present.items() if is_there is None]
        if unknown:
            row[f"{image}_unknown"] = unknown
    return row


def print_changes(
    connector: Connector,
    out: TextIO,
    *,
    limit: int | None,
    batch_size: int,
    stopped: threading.Event,
) -> int:
    """Write changes as JSON lines until `stopped`, `limit`, or the end of the files; returns how
    many.

    A batch is acked when all of it is written; one cut by `limit` is rolled back, so it comes
    again.
    """
    count, escapes = 0, _needs_escapes(out)
    for message in connector.messages(batch_size, _POLL_S, stopped=stopped):
        # Positions order changes within one file; a message may span two, a part does not.
        for part in message.batches_by_part():
            for change in changes(part):
                out.write(json.dumps(change, ensure_ascii=escapes) + "\n")
                count += 1
                if limit is not None and count >= limit:
                    out.flush()
                    return count
        out.flush()
    return count


def status_table(name: str, value: dict[str, Any]) -> Table:
    """One destination's status for a terminal."""
    table = Table(title=name, show_header=False, title_justify="left")
    table.add_column("", style="bold")
    table.add_column("")
    for key, item in _flat(plain(value)):
        table.add_row(key, item)
    return table


def subscriber_lines(records: Sequence[SubscriberReport]) -> list[str]:
    """One destination's subscribers for a terminal: a heading, then a line each."""
    rows = [("client", "state", "cursor", "bytes behind", "last call", "by", "policy", "filter")]
    for record in records:
        called, behind = _last_call(record), record["bytes_behind"]
        rows.append(
            (
                f"{record['client_id']} {record.get('label', '')}".rstrip(),
                _state(record),
                record["cursor"] or "none",
                "-" if behind is None else f"{behind:,}",
                "-" if called is None else _time(called),
                record["held_by"] or "-",
                record["policy"] or "-",
                record["filter"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    failed = [each for each in records if each["failure"]]
    return lines + [f"{each['client_id']}: {each['failure']}" for each in failed]


def _last_call(record: SubscriberReport) -> float | None:
    """Return when it called last (time.time()): as its process knows it, else as it was kept with
    the cursor, which a subscriber that only asks does not write."""
    ago_s = record["last_call_s"]
    return record["called_at"] if ago_s is None else time.time() - ago_s


def _state(record: SubscriberReport) -> str:
    if record["failure"]:
        return "failed"
    if record.get("paused_at"):
        return "paused"
    if record["expired_at"]:
        return "expired"
    if record["detached"]:
        return "catching up"
    return "-" if record["entries_behind"] is None else "in the log"


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, float):
        yield prefix, f"{value:,.1f}"
    else:
        yield prefix, "-" if value is None else str(value)


def standard_output() -> TextIO:
    """Return where changes are printed. Raises ConfigError: the caller has closed it."""
    if sys.stdout is None:  # Python has none then
        raise ConfigError("standard output is closed: there is nowhere to print changes to")
    return sys.stdout


def _needs_escapes(out: TextIO) -> bool:
    """Return whether a stream's encoding lacks characters; in JSON each has an escape."""
    return not codecs.lookup(out.encoding or "utf-8").name.startswith("utf")


def print_durably(batches: Sequence[pa.RecordBatch], out: TextIO) -> None:
    """Print changes as JSON lines; they are on the disk, or in the pipe, when it returns. Raises
    InstanceError: they could not be written; BrokenPipeError."""
    escapes = _needs_escapes(out)
    try:
        for change in changes(batches):
            out.write(json.dumps(change, ensure_ascii=escapes) + "\n")
        out.flush()
        if stat.S_ISREG(os.fstat(out.fileno()).st_mode):
            os.fsync(out.fileno())
    except BrokenPipeError:
        raise
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # what is left in the buffer is to go there
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)
        raise InstanceError(
            f"the changes could not be written ({error.strerror}); those that were not stay where "
            "they are"
        ) from None


def write_decoded(
    files: Sequence[Path],
    format: str,
    output: Path | None,
    schema: Path | None,
    tables: str,
    *,
    lower_case_table_names: int | None = None,
    skip_events: Sequence[str] = (),
    messages: dict[str, Any] | None = None,
    **entry_options: Any,
) -> None:
    """`ray-canal decode`: entries, messages or JSON lines to a file or standard output, Arrow IPC
    and Avro files to a directory. `entry_options`: of offline.decode_entries; `messages`: `options`
    and `batch_entries` of offline.decode_messages, and `change_events`, the options of Debezium's
    messages."""
    from ray_canal import offline

    read: dict[str, Any] = {
        "tables": tables, "schema_sql": schema, "skip_events": skip_events,
        "lower_case_table_names": lower_case_table_names,
    }  # fmt: skip
    if format == "arrow":
        _write_arrow(offline.decode_files(files, **read), _directory(output, format))
        return
    change_events: Any = (messages or {}).get("change_events")
    if format == "avro":
        events = offline.decode_change_events(files, change_events, **read)
        _write_avro(events, change_events, _directory(output, format))
        return
    with _opened(output) as out, _progress(files, output) as advance:
        read["on_bytes"] = advance
        if format == "debezium":
            found = offline.decode_debezium(files, change_events, **read)
        elif format in ("flat", "flat-entries"):
            given = {**(messages or {}), "as_entries": format == "flat-entries"}
            given.pop("change_events", None)
            gtid_set = entry_options.get("gtid_set", "")
            found = offline.decode_messages(files, gtid_set=gtid_set, **read, **given)
        elif format == "entries":
            found = offline.decode_entries(files, **read, **entry_options)
        else:
            found = _json_lines(offline.decode_batches(files, **read))
        out.writelines(found)


def _json_lines(found: Iterable[list[pa.RecordBatch]]) -> Iterator[bytes]:
    for batches in found:
        for change in changes(batches):
            yield json.dumps(change, ensure_ascii=False).encode() + b"\n"


def write_snapshot(batches: Iterator[pa.RecordBatch], format: str, output: Path | None) -> None:
    """`ray-canal snapshot read`: JSON lines to a file or standard output, Arrow IPC to a
    directory."""
    if format == "arrow":
        _write_arrow(batches, _directory(output, format))
        return
    with _opened(output) as out:
        out.writelines(_json_lines([batch] for batch in batches))


def _directory(output: Path | None, format: str) -> Path:
    if output is None:
        raise ConfigError(f"--format {format} writes one file per table: give --output DIRECTORY")
    output.mkdir(parents=True, exist_ok=True)
    return output


def _write_avro(found: Iterator[list[Any]], options: Any, directory: Path) -> None:
    """One Avro file for each table version, of Debezium's change events: SCHEMA.TABLE.avro, then
    SCHEMA.TABLE.2.avro, … Raises ConfigError: fastavro is missing."""
    try:
        from ray_canal.views.avro import append_to_file
    except ImportError as error:
        raise ConfigError(f'{error}; run: pip install "ray-canal[avro]"') from None
    versions: dict[str, list[Any]] = {}
    begun: set[Path] = set()
    for each in itertools.chain.from_iterable(found):
        form = each.form
        known = versions.setdefault(f"{form.schema}.{form.table}", [])
        path = directory / _file_name(f"{form.schema}.{form.table}", form, known, "avro")
        if path not in begun:
            path.unlink(missing_ok=True)
            begun.add(path)
        append_to_file(path, each, options)


def _file_name(table: str, version: Any, known: list[Any], ending: str) -> str:
    """Return the name of the file for a version of a table; a new version is added to `known`."""
    if version not in known:
        known.append(version)
    number = known.index(version) + 1
    suffix = "" if number == 1 else f".{number}"
    return f"{table.replace('/', '_')}{suffix}.{ending}"


def _write_arrow(batches: Iterator[pa.RecordBatch], directory: Path) -> None:
    """One IPC stream file for each table version: SCHEMA.TABLE.arrow, then SCHEMA.TABLE.2.arrow,
    …"""
    versions: dict[str, list[Any]] = {}
    with contextlib.ExitStack() as stack:
        writers: dict[str, Any] = {}
        for batch in batches:
            name = table_name(batch)
            file = _file_name(name, batch.schema, versions.setdefault(name, []), "arrow")
            if file not in writers:
                options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
                sink = pa.ipc.new_stream(str(directory / file), batch.schema, options=options)
                writers[file] = stack.enter_context(sink)
            writers[file].write_batch(batch)


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        out = standard_output().buffer
        yield out
        out.flush()
        return
    try:
        with output.open("wb") as out:
            yield out
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # which name no file
            error.filename = str(output)
        raise


@contextlib.contextmanager
def _progress(files: Sequence[Path], output: Path | None) -> Iterator[Any]:
    """A progress bar on standard error, if it is a terminal and the output is not."""
    if output is None or not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import Progress

    total = sum(f.stat().st_size for f in files if f.is_file()) or None
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("decoding", total=total)
        yield lambda size: progress.advance(task, size)
