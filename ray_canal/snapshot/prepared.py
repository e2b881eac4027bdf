"""Waiting until XA transactions that a log has as prepared show in every SELECT, or never will.

The log has the rows of an XA transaction at XA PREPARE, and nobody sees them before XA COMMIT,
which has none. So between the two a row is read as it was before, behind its newer one in the log.
"""

from __future__ import annotations

from ray_canal.config import SourceConfig
from ray_canal.errors import PrivilegeMissing, SourceError
from ray_canal.snapshot.commits import LIMIT_S, Ask, wait_until_ended

_OWN = "Com_xa_recover"


class PreparedTransactions:
    """The XA transactions of one server that are prepared. `may_look`: the server lists them; MySQL
    from 8.0 on does so for who has XA_RECOVER_ADMIN."""

    def __init__(self, config: SourceConfig, ask: Ask, *, is_mariadb: bool) -> None:
        """Raises SourceError kinds; PrivilegeMissing: there have been XA transactions, and those
        that are prepared cannot be seen."""
        self._config = config
        self._ask = ask
        # Both write names as hexadecimal digits; else they are bytes of no character set.
        self._sql = "XA RECOVER FORMAT='SQL'" if is_mariadb else "XA RECOVER CONVERT XID"
        self.may_look = True
        try:
            self.now()
        except SourceError as error:
            if error.retryable:
                raise
            self.may_look = False
            counters = ask("SHOW GLOBAL STATUS LIKE 'Com_xa%'")
            if any(int(row["Value"]) for row in counters if row["Variable_name"] != _OWN):
                raise not_seen(config) from None

    def now(self) -> frozenset[str]:
        """Return their names; none where they cannot be seen. Raises SourceError kinds."""
        if not self.may_look:
            return frozenset()
        return frozenset(str(sorted(row.items())) for row in self._ask(self._sql))

    def wait(self) -> None:
        """Return when none of those that are prepared now is so any more. Raises ConnectionLost:
        one is, and stays so."""
        wait_until_ended(self.now, self._late)

    def _late(self, left: frozenset[str] | None) -> str:
        return (
            f"MySQL at {self._config.address}: {len(left or ())} XA transactions have been "
            f"prepared for {LIMIT_S:.0f} s, and what they changed cannot be read before they end; "
            "look at XA RECOVER"
        )


def not_seen(config: SourceConfig) -> PrivilegeMissing:
    """Return the error that a server has XA transactions, and does not list them."""
    return PrivilegeMissing(
        f"MySQL at {config.address}: it has XA transactions, and rows that one of them has "
        "changed are read as they were before until it ends, so a snapshot has to see which are "
        f"prepared; run: GRANT XA_RECOVER_ADMIN ON *.* TO '{config.username}'@'%'"
    )
