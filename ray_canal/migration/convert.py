"""From Canal's properties files to the tree of a canal.toml, and what has to be said about it.

`keys.py` has a line for every key; here is how values are read, and where several keys make one
setting. Nothing is guessed: a value that cannot be read raises ConfigError with its key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tzlocal

from ray_canal.config import load
from ray_canal.errors import ConfigError
from ray_canal.migration.keys import (
    EVENT_FILTERS,
    INSTANCE_KEYS,
    KEYS,
    SERVER_KEYS,
    Key,
    Verdict,
    find,
    is_harmless,
    queue_keys,
)
from ray_canal.migration.properties import (
    Properties,
    destination_of,
    flag,
    instance_files,
    read,
)
from ray_canal.migration.queues import MODES, ROCKET_MODE, queue_sink

Tree = dict[str, Any]

_SPRING_FILES = {
    "memory-instance.xml": "memory",
    "file-instance.xml": "sqlite",
    "default-instance.xml": "sqlite",
    "local-instance.xml": "sqlite",
}
_BUFFER_SIZE = 16384  # Canal's default, which is not ours
_FIRST_EVENT = 4
_ALL_TABLES = r".*\..*"


@dataclass(frozen=True, slots=True)
class ImportNote:
    """Something to know about a key. `origin`: the destination, or canal.properties."""

    origin: str
    key: str
    text: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.origin}: {self.key}: {self.text}"


@dataclass(frozen=True, slots=True)
class Imported:
    """A canal.toml as a tree, valid as it stands, and the findings on the way there."""

    tree: Tree
    findings: tuple[ImportNote, ...]

    @property
    def refused(self) -> tuple[ImportNote, ...]:
        """Return the settings that could not be carried over."""
        return tuple(finding for finding in self.findings if finding.refused)


def import_canal(
    canal: Path,
    instances: Sequence[Path] = (),
    overrides: Mapping[str, str] | None = None,
    time_zone: str = "",
) -> Imported:
    """Read canal.properties and the instances' files; without `instances`, those next to it.

    `overrides` count before every file, as Canal's environment does. `time_zone`: the zone of
    Canal's JVM, in which it prints TIMESTAMP; empty: this machine's. Raises ConfigError: a file or
    a value cannot be read, or there is no such zone.
    """
    given = dict(overrides or {})
    server = Properties({**read(canal), **given})
    if instances:
        files = {destination_of(path): path for path in instances}
    else:
        files = instance_files(canal, server)
    if not files:
        raise ConfigError(
            f"{canal} names no destination (canal.destinations), and no folder next to it has an "
            "instance.properties; name the instances' files on the command line"
        )
    mode = server.get("canal.serverMode").lower()
    found = [
        *_said("canal.properties", server, _server_keys(mode)),
        *_unknown("canal.properties", server),
    ]
    tree: Tree = {}
    backends = set()
    trees: list[Tree] = []
    sinks: list[Tree] = []
    for name, path in files.items():
        own = read(path)
        values = {**server.values, **own, **given, "canal.instance.destination": name}
        properties = Properties(values)
        spring = _spring_file(name, properties, found)
        backends.add(_SPRING_FILES.get(spring, "sqlite"))
        tree_of_one = _instance(name, properties, spring == "local-instance.xml", found)
        tree_of_one["time_zone"] = _time_zone(name, time_zone, found)
        trees.append(tree_of_one)
        if mode in MODES:
            said: list[tuple[str, str]] = []
            sinks.append(queue_sink(mode, name, properties, said))
            found += [ImportNote(name, key, text) for key, text in said]
            found += _said(name, properties, queue_keys(mode))
        found += _said(name, properties, INSTANCE_KEYS)
        found += _unknown(name, Properties(own))
    tree["meta"] = _meta(server, backends)
    if mode not in MODES and not flag(server, "canal.withoutNetty"):
        tree["server"] = _server(server, found)
    tree["instance"] = trees
    if sinks:
        tree["sink"] = sinks
    load(tree)
    return Imported(tree, tuple(_without_repeats(found)))


def _without_repeats(found: Iterable[ImportNote]) -> list[ImportNote]:
    """Return what several destinations inherit from canal.properties is said once."""
    origins: dict[tuple[str, str, bool], list[str]] = {}
    for finding in found:
        named = origins.setdefault((finding.key, finding.text, finding.refused), [])
        if finding.origin not in named:
            named.append(finding.origin)
    return [
        ImportNote(", ".join(named), key, text, refused)
        for (key, text, refused), named in origins.items()
    ]


def _server_keys(mode: str) -> list[Key]:
    """Return the keys of canal.properties whose values are looked at. RocketMQ's
    sink has a use for those of Alibaba's cloud."""
    is_rocket = mode == ROCKET_MODE
    return [key for key in SERVER_KEYS if not (is_rocket and key.name.startswith("canal.aliyun."))]


def _said(origin: str, properties: Properties, scope: Sequence[Key]) -> list[ImportNote]:
    """The notices and refusals that keys of this scope give by their values alone."""
    found = []
    for name in properties.values:
        key = find(name)
        if key is None or key not in scope:
            continue
        if key.verdict not in (Verdict.NOTICE, Verdict.REFUSED):
            continue
        if not is_harmless(key, properties.get(name)):
            found.append(ImportNote(origin, name, key.note, key.verdict is Verdict.REFUSED))
    return found


def _unknown(origin: str, properties: Properties) -> list[ImportNote]:
    found = []
    names = [key.name for key in KEYS]
    for name in properties.values:
        if name.startswith("canal.") and find(name) is None:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
            text = "Canal knows no such key, so it had no effect; left out"
            found.append(
                ImportNote(origin, name, text + (f"; was {near[0]} meant?" if near else ""))
            )
    return found


# --- values ------------------------------------------------------------------------------------


def _number(properties: Properties, key: str) -> int:
    text = properties.get(key)
    if not re.fullmatch(r"-?\d{1,19}", text):
        raise ConfigError(f"{key} = {text!r}: expected a whole number")
    return int(text)


def _number_or_none(properties: Properties, key: str) -> int | None:
    return _number(properties, key) if properties.get(key) else None


def _secret(properties: Properties, key: str, variable: str, found: list[ImportNote]) -> str:
    """The reference that stands for a secret; "" where there is none."""
    named = properties.variable(key)
    if named is None and not properties.get(key):
        return ""
    name = named or variable
    origin = properties.values.get("canal.instance.destination", "canal.properties")
    found.append(ImportNote(origin, key, f"not written in clear: put it into the variable {name}"))
    return f"env:{name}"


def _variable(destination: str) -> str:
    return f"CANAL_{re.sub(r'[^A-Za-z0-9]', '_', destination).upper()}_PASSWORD"


# --- sections ----------------------------------------------------------------------------------


def _spring_file(name: str, properties: Properties, found: list[ImportNote]) -> str:
    """The Spring file that an instance is made of, without its folder."""
    key = f"canal.instance.{name}.spring.xml"
    if key not in properties.values:
        key = "canal.instance.global.spring.xml"
    file = re.split(r"[/:]", properties.get(key))[-1] or "file-instance.xml"
    if file not in _SPRING_FILES:
        text = f"{file} is not among {', '.join(sorted(_SPRING_FILES))}; what it wires is not known"
        found.append(ImportNote(name, key, text, refused=True))
    elif file == "default-instance.xml":
        text = "cursors leave ZooKeeper: [meta] says where they live (SQLite, MySQL, Redis)"
        found.append(ImportNote(name, key, text))
    return file


def _meta(properties: Properties, backends: set[str]) -> Tree:
    meta: Tree = {"backend": "memory" if backends == {"memory"} else "sqlite"}
    folder = properties.get("canal.file.data.dir")
    meta["path"] = str(Path(folder) / "meta.db") if Path(folder).is_absolute() else "meta.db"
    return meta


def _server(properties: Properties, found: list[ImportNote]) -> Tree:
    server: Tree = {}
    if properties.get("canal.user"):
        if properties.get("canal.ip"):
            server["host"] = properties.get("canal.ip")
    else:
        server["host"] = "127.0.0.1"
        text = (
            "is not set, so Canal lets everybody in; here the port listens on 127.0.0.1 alone "
            "until [server] has a password, [[server.user]] or, to leave it open, insecure = true"
        )
        found.append(ImportNote("canal.properties", "canal.user", text))
    if properties.get("canal.port"):
        server["port"] = _number(properties, "canal.port")
    if properties.get("canal.user"):
        server["username"] = properties.get("canal.user")
        reference = _secret(properties, "canal.passwd", "CANAL_SERVER_PASSWORD_HASH", found)
        if not reference:
            raise ConfigError(
                "canal.user is set, but canal.passwd is not: Canal refuses that, too; set it to "
                "the hexadecimal SHA1(SHA1(password)), or take canal.user out"
            )
        server["password_hash"] = reference
    return server


_Read = Callable[[Properties, str], Any]


def _text(properties: Properties, key: str) -> str:
    return properties.get(key)


def _on_purged(properties: Properties, key: str) -> str:
    return "latest" if flag(properties, key) else "fail"


_SIMPLE: tuple[tuple[str, str, str, _Read], ...] = (
    ("filter", "tables", "canal.instance.filter.regex", _text),
    ("filter", "fields", "canal.instance.filter.field", _text),
    ("filter", "black_fields", "canal.instance.filter.black.field", _text),
    ("store", "buffer_size", "canal.instance.memory.buffer.size", _number),
    ("store", "memunit_bytes", "canal.instance.memory.buffer.memunit", _number),
    ("store", "batch_mode", "canal.instance.memory.batch.mode", _text),
    ("store", "ddl_isolation", "canal.instance.get.ddl.isolation", flag),
    ("store", "transaction_size", "canal.instance.transaction.size", _number),
    *(
        ("filter", name.replace(".", "_"), f"canal.instance.filter.{name}", flag)
        for name in EVENT_FILTERS
    ),
    ("source", "detect", "canal.instance.detecting.enable", flag),
    ("source", "detect_sql", "canal.instance.detecting.sql", _text),
    ("source", "detect_interval_s", "canal.instance.detecting.interval.time", _number),
    ("source", "detect_failures", "canal.instance.detecting.retry.threshold", _number),
    ("source", "fallback_s", "canal.instance.fallbackIntervalInSeconds", _number),
    ("source", "on_purged", "canal.auto.reset.latest.pos.mode", _on_purged),
    ("tsdb", "enable", "canal.instance.tsdb.enable", flag),
    ("tsdb", "snapshot_interval_hours", "canal.instance.tsdb.snapshot.interval", _number),
    ("tsdb", "snapshot_expire_hours", "canal.instance.tsdb.snapshot.expire", _number),
)
"""(section of the instance, key in it, Canal's key, how it is read): one to one."""


def _instance(name: str, properties: Properties, is_local: bool, found: list[ImportNote]) -> Tree:
    """One destination."""
    tree: Tree = {"destination": name}
    if not flag(properties, "canal.instance.parser.parallel", "true"):
        tree["decoders"] = 0
    lazy = f"canal.instance.{name}.lazy"
    if lazy not in properties.values:
        lazy = "canal.instance.global.lazy"
    if flag(properties, lazy):
        tree["runs"] = "once_subscribed"
    source = _files(name, properties) if is_local else _live(name, properties, found)
    tree["source"] = source
    _start(source, properties, found)
    tree["filter"] = {"black_tables": properties.get("canal.instance.filter.black.regex")}
    tree["store"] = {"buffer_size": _BUFFER_SIZE}
    for section, key, canal, value in _SIMPLE:
        if properties.get(canal):
            tree.setdefault(section, {})[key] = value(properties, canal)
    if tree["filter"].get("tables", _ALL_TABLES) != _ALL_TABLES:
        tree["filter"]["subscribers"] = "replace"
        text = (
            "a client's subscribe(filter) takes its place, as in Canal (filter.subscribers), so "
            'rows of all tables but the black ones are decoded; "narrow" does not let clients widen'
        )
        found.append(ImportNote(name, "canal.instance.filter.regex", text))
    if tree["filter"].get("table_error"):
        text = "rows without a schema are lost; tsdb.on_ddl_error = \"quarantine\" keeps them"
        found.append(ImportNote(name, "canal.instance.filter.table.error", text))
    folder = properties.get("canal.instance.tsdb.dir")
    if Path(folder).is_absolute():
        tree.setdefault("tsdb", {})["path"] = str(Path(folder) / "tsdb.db")
    return tree


def _time_zone(name: str, given: str, found: list[ImportNote]) -> str:
    """Canal prints TIMESTAMP in its JVM's default zone, which no key of its files tells."""
    zone = given or tzlocal.get_localzone_name()
    origin = "as --time-zone says" if given else "this machine's zone"
    text = (
        f"TIMESTAMP values are printed in {zone}, {origin}; Canal prints them in its JVM's: where "
        "that is another one, import with --time-zone ZONE, or values shift"
    )
    found.append(ImportNote(name, "time_zone", text))
    return zone


def _live(name: str, properties: Properties, found: list[ImportNote]) -> Tree:
    """A server as the source."""
    prefix = "canal.instance."
    address = properties.get(f"{prefix}master.address")
    if not address:
        raise ConfigError(f"{name}: canal.instance.master.address is not set")
    source: Tree = {"address": address}
    standby = properties.get(f"{prefix}standby.address")
    if standby:
        source["standby"] = [standby]
        automatic = f"{prefix}detecting.heartbeatHaEnable"
        if not flag(properties, automatic):
            text = "a standby is switched to by itself here; if that is not wanted, take it out"
            found.append(ImportNote(name, automatic, text))
    if properties.get(f"{prefix}dbUsername"):
        source["username"] = properties.get(f"{prefix}dbUsername")
    password = _secret(properties, f"{prefix}dbPassword", _variable(name), found)
    if password:
        source["password"] = password
    if properties.get(f"{prefix}mysql.slaveId"):
        source["server_id"] = _number(properties, f"{prefix}mysql.slaveId")
    if properties.get(f"{prefix}network.soTimeout"):
        source["connect_timeout_s"] = float(_number(properties, f"{prefix}network.soTimeout"))
    mode = properties.get(f"{prefix}master.sslMode")
    if mode:
        source["tls"] = {"mode": mode.lower()}
    return source


def _files(name: str, properties: Properties) -> Tree:
    """A folder of binlog files as the source (local-instance.xml)."""
    folder = properties.get("canal.instance.parser.directory")
    if not folder:
        raise ConfigError(f"{name}: local-instance.xml needs canal.instance.parser.directory")
    return {"files": [folder], "follow": flag(properties, "canal.instance.parser.needWait")}


def _start(source: Tree, properties: Properties, found: list[ImportNote]) -> None:
    """Return where it starts without a cursor, in Canal's order: GTID set, place, time, the end."""
    prefix = "canal.instance.master."
    is_gtid = flag(properties, "canal.instance.gtidon")
    if properties.get("canal.instance.gtidon"):
        source["gtid"] = is_gtid
    gtid_set, journal = properties.get(f"{prefix}gtid"), properties.get(f"{prefix}journal.name")
    destination = properties.get("canal.instance.destination")
    position = _number_or_none(properties, f"{prefix}position")
    time_ms = _number_or_none(properties, f"{prefix}timestamp")
    if gtid_set and is_gtid:
        source.update(start="gtid", gtid_set=gtid_set)
    elif time_ms and not (journal and position):
        source.update(start="timestamp", timestamp=str(time_ms))
    elif journal:
        position = max(position or 0, _FIRST_EVENT)
        source.update(start="position", journal_name=journal, position=position)
    elif "files" not in source:
        text = (
            "no start is given, so it begins at the log's end; `ray-canal import-meta` takes "
            "Canal's own cursors over (meta.dat)"
        )
        found.append(ImportNote(destination, f"{prefix}journal.name", text))
    if gtid_set and not is_gtid:
        text = "without canal.instance.gtidon Canal does not look at it; left out"
        found.append(ImportNote(destination, f"{prefix}gtid", text))
