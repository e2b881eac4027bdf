"""Check before a start if a server (or files) can be read, and what to run if not."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.errors import (
    CanalError,
    ConnectionLost,
    PrivilegeMissing,
    ServerSettingRefused,
)
from ray_canal.source import server_id
from ray_canal.source.binlog_files import check_magic, list_binlogs
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import NOT_SYSTEM
from ray_canal.source.connection import grant_advice, named_values
from ray_canal.source.health import look_at
from ray_canal.source.membership import in_galera
from ray_canal.source.setting_checks import (
    CheckResult,
    ServerFacts,
    check_settings,
    listed,
    statements_advice,
)
from ray_canal.source.start.decision import configured_start
from ray_canal.source.start.server_log import log_of_server
from ray_canal.source.unlogged_changes import check_foreign_keys

log = logging.getLogger(__name__)

_LOG_SQL = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
    "('log_bin', 'binlog_format', 'log_slave_updates', 'wsrep_on', 'wsrep_provider')"
)


def check_source(config: InstanceConfig) -> list[CheckResult]:
    """Check a destination's source, each of its servers or its files, and return the results. The
    source's own errors are results, not raised."""
    if config.source.files:
        return _check_files(config)
    results = []
    uuids: dict[str, str] = {}
    for address in config.source.addresses:
        for result in check_server(config.at(address), uuids):
            named = result.name if len(config.source.addresses) == 1 else f"{address} {result.name}"
            results.append(replace(result, name=named))
    return results


def _check_files(config: InstanceConfig) -> list[CheckResult]:
    try:
        paths = list_binlogs(tuple(Path(name) for name in config.source.files))
        for path in paths:
            with open(path, "rb") as file:
                check_magic(path, file.read(4))
    except (CanalError, OSError) as error:
        return [CheckResult("binlog files", False, str(error), "check source.files")]
    return [CheckResult("binlog files", True, f"{paths[0].name} … {paths[-1].name}: {len(paths)}")]


def check_server(
    config: InstanceConfig, uuids: dict[str, str] | None = None
) -> list[CheckResult]:
    """Reachability, login, grants and settings of a live server, in that order. `uuids`: of the
    servers that were checked before, by uuid; this one is added."""
    source = config.source
    catalog = Catalog(source)
    try:
        try:
            version = catalog.version
        except CanalError as error:
            return [CheckResult("connection", False, str(error))]
        results = [CheckResult("connection", True, f"{source.address} runs {version}")]
        try:
            results += _check_grants(source, catalog)
            results += check_settings(config, facts_of(catalog, version))
            if source.standby:
                results.append(_check_standby(source, catalog, {} if uuids is None else uuids))
            if source.standby or source.detect:
                results.append(_check_detection(source, catalog))
            results.append(_check_start(source, catalog))
            results.append(_check_filter(config, catalog))
            results.append(check_foreign_keys(catalog, config.filter.of_subscriber("").admits))
            if source.snapshot == "initial" and config.snapshot.mode == "keyed":
                results.append(_check_keys(config, catalog))
        except CanalError as error:
            results.append(CheckResult("queries", False, str(error)))
        return results
    finally:
        catalog.close()


def facts_of(catalog: Catalog, version: str) -> ServerFacts:
    """Return what the checks of settings need to know of a server. Raises SourceError kinds."""
    variables = named_values(catalog.rows("SHOW GLOBAL VARIABLES"))
    asked_at = time.time()
    clock = catalog.rows(
        "SELECT UNIX_TIMESTAMP(NOW(6)) AS now,"
        " TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) AS zone"
    )[0]
    limits = catalog.log_limits() if _is_on(variables, "log_bin") else ("", "")
    return ServerFacts(
        version,
        variables,
        catalog.retention_s(),
        frozenset(server_id.taken_by_replicas(catalog.rows)),
        round(int(clock["zone"]) / 60) * 60,  # the two calls may see different seconds
        float(clock["now"]) - (asked_at + time.time()) / 2,
        *limits,
    )


def source_tables(config: InstanceConfig) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the tables that a live server has and its user may see, with the columns of their
    primary keys; none of files, or of a server that does not answer."""
    if config.source.files:
        return []
    catalog = Catalog(config.source)
    try:
        names = catalog.rows(
            "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t FROM information_schema.TABLES"
            f" WHERE {NOT_SYSTEM} AND TABLE_TYPE = 'BASE TABLE'"
        )
        keys = catalog.rows(
            "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t, COLUMN_NAME AS c"
            f" FROM information_schema.STATISTICS WHERE {NOT_SYSTEM} AND INDEX_NAME = 'PRIMARY'"
        )
    except CanalError:
        return []
    finally:
        catalog.close()
    found: dict[tuple[str, str], list[str]] = {(str(row["s"]), str(row["t"])): [] for row in names}
    for row in keys:
        if (str(row["s"]), str(row["t"])) in found:
            found[str(row["s"]), str(row["t"])].append(str(row["c"]))
    return [(schema, table, tuple(key)) for (schema, table), key in found.items()]


def _check_standby(source: SourceConfig, catalog: Catalog, uuids: dict[str, str]) -> CheckResult:
    """Check that each of several servers is another one than those before."""
    uuid = catalog.server_uuid()
    same = uuids.setdefault(uuid, source.address)
    ok = same == source.address
    detail = uuid if ok else f"{uuid}, the same as {same}: one cannot stand in for itself"
    return CheckResult("server_uuid", ok, detail, "" if ok else "change source.standby")


def _check_detection(source: SourceConfig, catalog: Catalog) -> CheckResult:
    try:
        look_at(source, catalog)
    except CanalError as error:
        fix = "source.detect_sql, or the user's grants for it; or have the server join its cluster"
        return CheckResult("detect_sql", False, str(error), fix)
    return CheckResult("detect_sql", True, source.detect_sql)


def _check_grants(source: SourceConfig, catalog: Catalog) -> list[CheckResult]:
    everywhere, elsewhere = granted(catalog.grants())
    # With full row metadata the catalog is asked for nothing that decoding needs.
    names_in_binlog = str(catalog.variable("binlog_row_metadata") or "").upper() == "FULL"
    results = []
    for name, also in (
        ("REPLICATION SLAVE", {"REPLICATION REPLICA"}),
        ("REPLICATION CLIENT", {"BINLOG MONITOR"}),
        ("SELECT", set()),
    ):
        is_global = bool(everywhere & {name, "ALL PRIVILEGES", *also})
        ok = is_global or name in elsewhere
        given = "given" if is_global else "given, but not ON *.*: other tables are not known"
        results.append(
            CheckResult(
                f"grant {name}",
                ok,
                given if ok else f"missing for {source.username!r}",
                "" if ok else grant_advice(source.username),
                advisory=name == "SELECT" and names_in_binlog,
            )
        )
    return results


def granted(grants: list[str]) -> tuple[set[str], set[str]]:
    """Return the privileges ON *.* and those on databases or tables alone, of SHOW GRANTS."""
    everywhere: set[str] = set()
    elsewhere: set[str] = set()
    for grant in grants:
        match = re.match(r"GRANT (.+?) ON (\S+)", grant, re.IGNORECASE)
        if match is not None:
            names = re.split(r"\s*(?:\([^)]*\))?\s*(?:,\s*|$)", match[1].upper())
            (everywhere if match[2] == "*.*" else elsewhere).update(filter(None, names))
    return everywhere, elsewhere


def _check_start(source: SourceConfig, catalog: Catalog) -> CheckResult:
    try:
        with log_of_server(source, catalog) as log:
            position = configured_start(source, log)
    except CanalError as error:
        is_told = isinstance(error, (ServerSettingRefused, PrivilegeMissing, ConnectionLost))
        return CheckResult("start", False, str(error), "" if is_told else "change source.start")
    return CheckResult(
        "start", True, f"{source.start}: {position if position.journal_name else position.gtid}"
    )


def _check_filter(config: InstanceConfig, catalog: Catalog) -> CheckResult:
    """Check that the filter admits a table that is there: one with a misspelt name admits none."""
    rows = catalog.rows(
        f"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE {NOT_SYSTEM}"
    )
    admits = config.filter.of_subscriber("").admits
    count = sum(admits(str(row["TABLE_SCHEMA"]), str(row["TABLE_NAME"])) for row in rows)
    of_all = f"{count} of the {len(rows)} tables that {config.source.username!r} may see"
    if count or not rows:
        return CheckResult("filter", True, of_all)
    fix = "change instance.filter.tables, a list of regular expressions over schema.table"
    detail = f"'{config.filter.tables}' admits {of_all}"
    return CheckResult("filter", False, detail, fix, advisory=True)


def _check_keys(config: InstanceConfig, catalog: Catalog) -> CheckResult:
    """Check that all tables have a key by which a snapshot reads them."""
    unique = (
        "SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = t.TABLE_SCHEMA"
        " AND s.TABLE_NAME = t.TABLE_NAME AND s.NON_UNIQUE = 0 GROUP BY s.INDEX_NAME"
        " HAVING SUM(s.NULLABLE = 'YES') = 0"
    )
    rows = catalog.rows(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES t"
        f" WHERE {NOT_SYSTEM} AND TABLE_TYPE = 'BASE TABLE' AND NOT EXISTS ({unique})"
    )
    admits = config.filter.of_subscriber("").admits
    every = [(str(row["TABLE_SCHEMA"]), str(row["TABLE_NAME"])) for row in rows]
    found = [f"{schema}.{table}" for schema, table in every if admits(schema, table)]
    if not found:
        return CheckResult("source.snapshot", True, "every table has a key")
    detail = f"no key, by which rows are told apart: {listed(found)}"
    fix = (
        'snapshot.mode = "consistent", or give them a primary key, or leave them out of '
        "instance.filter.tables: else a snapshot of all tables fails"
    )
    return CheckResult("source.snapshot", False, detail, fix)


def refuse_settings(source: SourceConfig, catalog: Catalog) -> None:
    """Raise ServerSettingRefused without a binlog, or of a Galera node that does not log what other
    nodes write; warn of a log that does not hold all rows."""
    settings = named_values(catalog.rows(_LOG_SQL))
    if not _is_on(settings, "log_bin"):
        raise ServerSettingRefused(
            f"MySQL at {source.address}: log_bin is off, so there is nothing to read; start the "
            "server with --log-bin"
        )
    if in_galera(settings) and not _is_on(settings, "log_slave_updates"):
        raise ServerSettingRefused(
            f"MySQL at {source.address}: it is a node of a Galera cluster and log_slave_updates is "
            "off, so its log lacks what other nodes write; set log_slave_updates = ON in its my.cnf"
        )
    log_format = (settings.get("binlog_format") or "ROW").upper()
    if log_format != "ROW":
        log.warning("MySQL at %s: %s", source.address, statements_advice(log_format))


def _is_on(variables: Mapping[str, str], name: str) -> bool:
    return variables.get(name, "").upper() in ("ON", "1")
