"""Cursors in two tables of a MySQL or MariaDB server: for clusters whose head may move.

Every operation is one statement that commits by itself. So an owner that is stopped in the middle
holds no lock on which its successor would wait, and a lost connection leaves nothing half done. A
write reads the epoch with a shared lock, in the statement that writes: no takeover fits between.
As durable as the server's commits are (innodb_flush_log_at_trx_commit = 1).
"""

from __future__ import annotations

from ray_canal.config import MetaConfig
from ray_canal.meta.backend import clock_epoch, fenced, refused
from ray_canal.meta.mysql_database import MetaDatabase

_NAME = "character set ascii collate ascii_bin not null"
_TABLES = {
    "canal_epoch": f"destination varchar(255) {_NAME}, epoch bigint not null,"
    f" owner varchar(64) {_NAME}, primary key (destination)",
    "canal_cursor": f"destination varchar(255) {_NAME}, client_id bigint not null,"
    " record longtext character set utf8mb4 collate utf8mb4_bin not null,"
    " writes bigint not null, primary key (destination, client_id)",
}
# LAST_INSERT_ID carries the new value out of the statement that made it.
_ACQUIRE = (
    "insert into {d}.canal_epoch values (%s, last_insert_id(%s), %s)"
    " on duplicate key update epoch = last_insert_id(greatest(epoch + 1, %s)), owner = %s"
)
_KNOW = "insert ignore into {d}.canal_epoch values (%s, 0, '')"
_ACQUIRE_AGAIN = (
    "update {d}.canal_epoch set epoch = last_insert_id(greatest(epoch + 1, %s)), owner = %s"
    " where destination = %s and (epoch <= %s or (owner = %s and owner <> ''))"
)
_EPOCH = "select epoch from {d}.canal_epoch where destination = %s"
_LOAD = "select client_id, record from {d}.canal_cursor where destination = %s"
# `writes` makes a repeated record a change, so that the number of changed rows tells what happened.
_SAVE = (
    "insert into {d}.canal_cursor select destination, %s, %s, 1 from {d}.canal_epoch"
    " where destination = %s and epoch = %s lock in share mode"
    " on duplicate key update record = %s, writes = writes + 1"
)
_REMOVE = (
    "delete from {d}.canal_cursor where destination = %s and client_id = %s and exists (select 1"
    " from {d}.canal_epoch where destination = %s and epoch = %s lock in share mode)"
)


class MysqlBackend:
    """A MetaBackend in MySQL or MariaDB; MetaDatabase says what it raises."""

    def __init__(self, config: MetaConfig) -> None:
        self._database = MetaDatabase(config, _TABLES)
        self.where = self._database.where

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        least = clock_epoch()
        if after is None:
            given = (destination, least, owner, least, owner)
            return self._database.changed_and_id(_ACQUIRE, *given)[1]
        self._database.changed(_KNOW, destination)  # of tables that were emptied
        values = (least, owner, destination, after, owner)
        changed, epoch = self._database.changed_and_id(_ACQUIRE_AGAIN, *values)
        if not changed:
            raise fenced(destination, after, self.epoch(destination))
        return epoch

    def epoch(self, destination: str) -> int:
        rows = self._database.rows(_EPOCH, destination)
        return int(rows[0]["epoch"]) if rows else 0

    def epoch_at_once(self, destination: str) -> int | None:
        return None  # its server answers in its own time

    def load(self, destination: str) -> dict[int, str]:
        rows = self._database.rows(_LOAD, destination)
        return {int(row["client_id"]): str(row["record"]) for row in rows}

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        values = (client_id, record, destination, epoch, record)
        if not self._database.changed(_SAVE, *values):
            raise refused(destination, epoch, self.epoch(destination))

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        if not self._database.changed(_REMOVE, destination, client_id, destination, epoch):
            newest = self.epoch(destination)
            if newest != epoch:
                raise refused(destination, epoch, newest)

    def close(self) -> None:
        self._database.close()
