"""The command that compares what ray_canal decodes with what mysql-replication decodes."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ray_canal.cli.options import AsJson, Tables
from ray_canal.cli.signals import until_signal

if TYPE_CHECKING:
    from ray_canal.model.position import EntryPosition
    from ray_canal.verify.compare import Report


def verify(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE… | CONFIG DESTINATION",
            help="Binlog files in order, or a directory; or a TOML file and a destination of it, "
            "whose server's log is read.",
        ),
    ],
    files: Annotated[int, typer.Option(min=1, help="Of a server: so many of its last files.")] = 1,
    start: Annotated[
        str, typer.Option("--from", help="Of a server: from FILE:POSITION to the log's end.")
    ] = "",
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="End after so long, and report.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Of files: CREATE TABLE statements, as for decode.")
    ] = None,
    lower_case_table_names: Annotated[
        int | None, typer.Option(min=0, max=2, help="Of files: the server's.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Print so many differences in detail.")] = 20,
    as_json: AsJson = False,
    filter: Tables = r".*\..*",
) -> None:
    """Decode a log with ray_canal and with mysql-replication and report every difference.

    Compares event type, table, columns and each value of each row, before and after. Values that
    mysql-replication cannot decode, or decodes by other conventions, are counted by type and
    reason. Exits with 1 on a difference, and where ray_canal cannot decode. Ctrl-C reports what was
    compared until then. No Ray. Needs the package's extra `verify`.
    """
    from ray_canal.verify.compare import Report
    from ray_canal.verify.runs import verify_files, verify_server

    report = Report(details_max=show)
    with _ending(seconds) as ended, _progress() as (on_total, on_bytes):
        if source[0].endswith(".toml"):
            from ray_canal.config import load
            from ray_canal.errors import ConfigError

            if len(source) != 2:
                raise ConfigError(f"expected CONFIG DESTINATION, not {' '.join(source)!r}")
            instance = load(Path(source[0])).destination(source[1])
            position = _position(start) if start else None
            verify_server(
                instance, report, files=files, start=position, tables=filter,
                on_total=on_total, on_bytes=on_bytes, ended=ended,
            )  # fmt: skip
        else:
            paths = [Path(name) for name in source]
            on_total(sum(path.stat().st_size for path in paths if path.is_file()))
            verify_files(
                paths, report, tables=filter, schema_sql=schema,
                lower_case_table_names=lower_case_table_names, on_bytes=on_bytes, ended=ended,
            )  # fmt: skip
    _print(report, as_json)
    if not report.agrees:
        raise typer.Exit(1)


def _position(text: str) -> EntryPosition:
    from ray_canal.errors import ConfigError
    from ray_canal.model.position import EntryPosition

    name, colon, offset = text.rpartition(":")
    if not colon or not name or not offset.isdigit():
        raise ConfigError(f"--from {text!r}: expected FILE:POSITION")
    return EntryPosition(name, int(offset))


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
        return
    for difference in report.details:
        typer.echo(str(difference))
    if report.differences > len(report.details):
        typer.echo(f"… and {report.differences - len(report.details):,} more differences")
    typer.echo(
        f"{report.events:,} row events, {report.rows:,} rows, {report.values:,} values compared: "
        f"{report.differences:,} differences"
    )
    for (kind, reason), count in sorted(report.not_compared.items()):
        typer.echo(f"not compared: {count:,} values of type {kind}: {reason}")
    if report.ended:
        typer.echo(f"not to the end: {report.ended}")
    if report.failure:
        typer.echo(f"ray_canal cannot decode: {report.failure}")


@contextlib.contextmanager
def _ending(seconds: float | None) -> Iterator[Callable[[], str]]:
    """Yield what says whether to end early: after `seconds`, or a first Ctrl-C or SIGTERM."""
    began_s = time.monotonic()
    with until_signal() as stopped:

        def ended() -> str:
            if stopped.is_set():
                return "interrupted"
            is_late = seconds is not None and time.monotonic() - began_s >= seconds
            return f"after {seconds:g} s" if is_late else ""

        yield ended


@contextlib.contextmanager
def _progress() -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Yield what hears of bytes, in all and read: a progress bar, if standard error is a
    terminal."""
    if not sys.stderr.isatty():
        yield (lambda size: None), (lambda size: None)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=None)
        yield (
            lambda size: progress.update(task, total=size or None),
            lambda size: progress.advance(task, size),
        )
