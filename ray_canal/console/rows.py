"""The rows that tables hold now, read from a destination's source for a program that asks."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any, Literal

from ray_canal.config import CanalConfig
from ray_canal.config.filters import FilterConfig
from ray_canal.console.live_tail import Tails, masked
from ray_canal.errors import AccessDenied, CanalError
from ray_canal.render import changes
from ray_canal.snapshot.read import read_snapshot


def read_rows(
    tails: Tails,
    config: CanalConfig,
    destination: str,
    tables: str,
    mode: Literal["consistent", "keyed"],
    hidden: Sequence[str],
) -> Generator[str]:
    """Yield JSON lines: `tables` and `left_out`; then a change of the type READ for each row,
    hidden values as dots; then `position`, `gtid_set` and `rows`, or an `error`.

    It counts as a live tail. The first line raises ConsumerError: too many are open; ConfigError,
    SourceError: it cannot begin; AccessDenied: a table is one that no subscriber may see.
    """
    tails.enter()
    try:
        with read_snapshot(config, destination, tables=tables, mode=mode) as found:
            _refuse_beyond(config.destination(destination).filter, tables, found.tables)
            yield _line({"tables": list(found.tables), "left_out": dict(found.left_out)})
            try:
                for batch in found:
                    for change in changes([batch]):
                        yield _line(masked(change, hidden))
            except CanalError as error:
                yield _line({"error": type(error).__name__, "message": str(error)})
                return
            place = found.position
            end = {"position": str(place), "gtid_set": place.gtid, "rows": found.rows}
            yield _line(end)
    finally:
        tails.leave()


def _refuse_beyond(own: FilterConfig, tables: str, names: Sequence[str]) -> None:
    """Raises AccessDenied: the source's user may read more than the destination gives anybody."""
    passes = own.of_subscriber(tables)
    beyond = [name for name in names if not passes.admits(*name.split(".", 1))]
    if beyond:
        raise AccessDenied(
            f"{', '.join(beyond[:5])}: not among the destination's tables ([instance.filter])"
        )


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) + "\n"
