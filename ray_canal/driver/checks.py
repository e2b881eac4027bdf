"""Before a start: will this server (or will these files) do; what to run where they will not."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.driver.catalog import Catalog
from ray_canal.driver.connection import grant_advice
from ray_canal.driver.server_log import ServerLog
from ray_canal.driver.start import configured_start
from ray_canal.errors import CanalError, ServerSettingRefused


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check. `mend` says what to run or set; `advisory`: it works without, but less well."""

    name: str
    ok: bool
    detail: str
    mend: str = ""
    advisory: bool = False


def check_source(config: InstanceConfig) -> list[CheckResult]:
    """All checks of a destination's source. Raises nothing that the source is at fault for."""
    return _check_files(config) if config.source.files else check_server(config)


def _check_files(config: InstanceConfig) -> list[CheckResult]:
    from ray_canal.driver.files import check_magic, list_binlogs

    try:
        paths = list_binlogs(tuple(Path(name) for name in config.source.files))
        for path in paths:
            with open(path, "rb") as file:
                check_magic(path, file.read(4))
    except (CanalError, OSError) as error:
        return [CheckResult("binlog files", False, str(error), "check source.files")]
    return [CheckResult("binlog files", True, f"{paths[0].name} … {paths[-1].name}: {len(paths)}")]


def check_server(config: InstanceConfig) -> list[CheckResult]:
    """Reachability, login, grants and settings of a live server, in that order."""
    source = config.source
    catalog = Catalog(source)
    try:
        try:
            version = catalog.version
        except CanalError as error:
            return [CheckResult("connection", False, str(error), "see the detail")]
        results = [CheckResult("connection", True, f"{source.address} runs {version}")]
        try:
            results += _check_grants(source, catalog)
            results += _check_settings(catalog)
            results.append(_check_start(source, catalog))
        except CanalError as error:
            results.append(CheckResult("queries", False, str(error), "see the detail"))
        return results
    finally:
        catalog.close()


def _check_grants(source: SourceConfig, catalog: Catalog) -> list[CheckResult]:
    text = "; ".join(re.split(r" TO ", grant, maxsplit=1)[0] for grant in catalog.grants()).upper()
    everything = "ALL PRIVILEGES ON *.*" in text
    # With full row metadata the catalog is asked for nothing that decoding needs.
    names_in_binlog = str(catalog.variable("binlog_row_metadata") or "").upper() == "FULL"
    results = []
    for name, also in (
        ("REPLICATION SLAVE", ("REPLICATION REPLICA",)),
        ("REPLICATION CLIENT", ("BINLOG MONITOR",)),
        ("SELECT", ()),
    ):
        ok = everything or any(each in text for each in (name, *also))
        results.append(
            CheckResult(
                f"grant {name}",
                ok,
                "given" if ok else f"missing for {source.username!r}",
                "" if ok else grant_advice(source.username),
                advisory=name == "SELECT" and names_in_binlog,
            )
        )
    return results


def _check_settings(catalog: Catalog) -> list[CheckResult]:
    def value(name: str) -> str:
        return (catalog.variable(name) or "").upper()

    log_on = value("log_bin") in ("ON", "1")
    results = [
        CheckResult("log_bin", log_on, value("log_bin"), "" if log_on else "start with --log-bin")
    ]
    log_format = value("binlog_format") or "ROW"
    ok = log_format == "ROW"
    mend = "" if ok else "SET GLOBAL binlog_format = 'ROW'; then let the applications reconnect"
    results.append(CheckResult("binlog_format", ok, log_format, mend))
    wanted = [
        ("binlog_row_image", "FULL", "before and after images lack columns"),
        ("binlog_row_metadata", "FULL", "column names come from the present catalog"),
        ("binlog_checksum", "CRC32", "damaged bytes are not noticed"),
    ]
    for name, good, otherwise in wanted:
        found = value(name)
        ok = found == good or (not found and name == "binlog_row_image")
        detail = found or "not known to this server"
        mend = "" if ok else f"SET GLOBAL {name} = '{good}' ({otherwise})"
        if not ok and not found:
            mend = otherwise
        results.append(CheckResult(name, ok, detail, mend, advisory=True))
    if not catalog.is_mariadb:
        mode = value("gtid_mode") or "OFF"
        ok = mode == "ON"
        mend = "" if ok else "gtid_mode = ON lets a destination move to another server"
        results.append(CheckResult("gtid_mode", ok, mode, mend, advisory=True))
    number = value("server_id")
    ok = number not in ("", "0")
    mend = "" if ok else "SET GLOBAL server_id = 1 (a server with id 0 refuses replicas)"
    results.append(CheckResult("server_id", ok, number, mend))
    return results


def _check_start(source: SourceConfig, catalog: Catalog) -> CheckResult:
    wake, writer = os.pipe()
    try:
        position = configured_start(source, ServerLog(source, catalog, wake))
    except CanalError as error:
        return CheckResult("start", False, str(error), "change source.start")
    finally:
        os.close(wake)
        os.close(writer)
    return CheckResult(
        "start", True, f"{source.start}: {position if position.journal_name else position.gtid}"
    )


def refuse_settings(source: SourceConfig, catalog: Catalog) -> None:
    """Raises ServerSettingRefused: no binlog, or one that does not hold rows."""
    if (catalog.variable("log_bin") or "").upper() not in ("ON", "1"):
        raise ServerSettingRefused(
            f"MySQL at {source.address}: log_bin is off, so there is nothing to read; start the "
            "server with --log-bin"
        )
    log_format = (catalog.variable("binlog_format") or "ROW").upper()
    if log_format != "ROW":
        raise ServerSettingRefused(
            f"MySQL at {source.address}: binlog_format is {log_format}, which does not log rows; "
            "run: SET GLOBAL binlog_format = 'ROW', and let the applications reconnect"
        )
