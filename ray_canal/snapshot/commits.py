"""Waiting until all that a MySQL server has in its log shows in every SELECT.

MySQL prepares a transaction in InnoDB, writes it into the log, and then commits it in InnoDB,
which shows its rows. From 5.7 on `gtid_executed` gets it last of all. MySQL 5.6 adds it when it is
written into the log, before anybody can see it; and a place of the log says nothing on any version.
There InnoDB itself is asked: what is written and does not show is a prepared transaction.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PrivilegeMissing, ServerSettingRefused
from ray_canal.source.catalog import Catalog

_STATUS = "SHOW ENGINE INNODB STATUS"
_PREPARED = re.compile(r"TRANSACTION (\d+), ACTIVE \(PREPARED\)")
_CUT = "... truncated..."
"""Text of the status in place of transactions that were too many for it."""
_PAUSE_S = 0.005
LIMIT_S = 10.0
"""A transaction that is listed is waited for so long."""
_HIDES = {"innodb_support_xa": "OFF", "innodb_status_output_locks": "ON"}
"""With these, a transaction that is written may be no prepared one, or may be left out."""

Ask = Callable[[str], list[dict[str, Any]]]


def has_gtids(catalog: Catalog) -> bool:
    """Return True if a MySQL server gives each transaction a GTID."""
    return (catalog.variable("gtid_mode") or "OFF").upper() == "ON"


def shows_what_is_executed(catalog: Catalog) -> bool:
    """Return True if every transaction of a MySQL server's `gtid_executed` shows."""
    return has_gtids(catalog) and version_of(catalog) >= (5, 7)


def version_of(catalog: Catalog) -> tuple[int, int]:
    """Return (major, minor) of the server's version."""
    first, second = catalog.version.split(".")[:2]
    return int(first), int(second)


def wait_until_ended(
    listed: Callable[[], frozenset[str] | None], late: Callable[[frozenset[str] | None], str]
) -> None:
    """Return when none of the transactions that are `listed` now is so any more (None: there are
    more than can be listed). Raises ConnectionLost, with what `late` says of those that are left:
    they stay so."""
    deadline = time.monotonic() + LIMIT_S
    left = listed()
    while left is None or left:
        if time.monotonic() > deadline:
            raise ConnectionLost(late(left))
        time.sleep(_PAUSE_S)
        now = listed()
        left = now if left is None or now is None else left & now


class PendingCommits:
    """The transactions of one MySQL server that its log may have and that do not show yet."""

    def __init__(self, config: SourceConfig, catalog: Catalog, ask: Ask) -> None:
        """Raises ServerSettingRefused: the server does not tell which they are."""
        self._config = config
        self._ask = ask
        for name, value in _HIDES.items():
            if (catalog.variable(name) or "").upper() == value:
                other = "OFF" if value == "ON" else "ON"
                raise ServerSettingRefused(
                    f"MySQL at {config.address}: {name} is {value}, so it cannot be told which "
                    f"transactions show; run: SET GLOBAL {name} = {other}"
                )

    def wait(self) -> None:
        """Return when all that the log has now shows. Raises PrivilegeMissing; ConnectionLost:
        something does not, and stays so."""
        wait_until_ended(self._prepared, self._late)

    def _late(self, left: frozenset[str] | None) -> str:
        names = "too many to be listed" if left is None else ", ".join(sorted(left))
        return (
            f"MySQL at {self._config.address}: InnoDB's transactions that are prepared ({names}) "
            f"have not been committed for {LIMIT_S:.0f} s; look at XA RECOVER"
        )

    def _prepared(self) -> frozenset[str] | None:
        """Return InnoDB's names of what is prepared now. None: it does not list all."""
        try:
            [row] = self._ask(_STATUS)
        except PrivilegeMissing as error:
            raise PrivilegeMissing(
                f"{error}; without GTIDs, and on MySQL 5.6, a snapshot has to see which "
                f"transactions are being committed: GRANT PROCESS ON *.* TO "
                f"'{self._config.username}'@'%'"
            ) from error
        status = row["Status"]
        text = status.decode("utf-8", "replace") if isinstance(status, bytes) else str(status)
        return None if _CUT in text else frozenset(_PREPARED.findall(text))
