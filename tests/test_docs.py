"""Code blocks of README.md and docs/: TOML is loaded, Python is run, SQL goes to real servers.

Python blocks of one file run in order in one namespace, in a folder with the demo's binlog files
and a canal.toml that reads them as destination `orders`. A block after `<!-- not run: REASON -->`
is left out.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal import config, errors
from ray_canal.client.control import SubscriberControl
from ray_canal.client.snapshots import SnapshotControl
from ray_canal.demo import CONFIG_PATH, binlog_files
from ray_canal.errors import InstanceNotFound
from ray_canal.source.checks import check_source
from tests.servers import Server

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Spark's Python side leaves its sockets to the JVM to close.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:`use_:DeprecationWarning",  # Ray Data's own settings, which it asks itself
    "ignore:Use 'expr' instead of 'fn':UserWarning",  # Ray Data's advice
)

NOT_RUN_MAX = 2
"""Python blocks that no test runs. It only goes down, or up with a reason in the review."""

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    path: Path
    line: int
    language: str
    text: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path, language: str) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        line = text[: match.start("text")].count("\n") + 1
        found.append(Block(path, line, match["language"], match["text"], match["reason"] or ""))
    return [block for block in found if block.language == language]


def all_blocks(language: str) -> list[Block]:
    return [block for path in DOCUMENTS for block in blocks(path, language)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the demo's binlog files and a canal.toml for them."""
    for file in binlog_files():
        shutil.copy(file, tmp_path)
    text = CONFIG_PATH.read_text(encoding="utf-8").replace('"shop"', '"orders"')
    (tmp_path / "canal.toml").write_text(f"{text}\n[flight]\nport = 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    had_spark = _spark_runs()
    yield tmp_path
    if _spark_runs() and not had_spark:
        canal.spark.stop()
    for name in ("orders", "shop"):
        with contextlib.suppress(InstanceNotFound):
            canal.stop(name)


def _spark_runs() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda block: block.name)
def test_toml_is_a_deployment(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "canal.toml"
    path.write_text(block.text, encoding="utf-8")
    found = config.load(path)
    assert found.instance
    assert type(found).model_validate_json(found.model_dump_json()) == found, "as processes get it"


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if blocks(path, "python")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_python_runs(
    path: Path, local_ray: None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace: dict[str, object] = {"__name__": "document"}
    for block in blocks(path, "python"):
        if not block.reason:
            # Padded, so that a traceback has the document's own line numbers.
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(path), "exec"), namespace)
    if path.name == "README.md":
        printed = capsys.readouterr().out
        assert "mysql-bin.000001" in printed
        assert "INSERT" in printed
        assert "customers" in printed


def test_few_python_blocks_are_left_out() -> None:
    assert sum(bool(block.reason) for block in all_blocks("python")) <= NOT_RUN_MAX


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_the_grants_are_enough(kind: str, request: pytest.FixtureRequest) -> None:
    """`ray-canal check`, as the user that docs/how-to/grants.md makes, finds nothing missing."""
    server: Server = request.getfixturevalue(kind)
    statements: list[str] = []
    for block in blocks(ROOT / "docs/how-to/grants.md", "sql"):
        head, _, text = block.text.partition("\n")
        if head == ("-- mariadb" if server.is_mariadb else "-- mysql"):
            statements += [part.strip() for part in text.split(";") if part.strip()]
    server.execute("CREATE DATABASE IF NOT EXISTS shop", *statements)
    password = re.findall(r"IDENTIFIED BY '(.+?)'", statements[0])[0]
    source = {"address": server.address, "username": "canal", "password": password}
    instance = config.InstanceConfig.model_validate({"destination": "docs", "source": source})
    try:
        results = check_source(instance)
    finally:
        server.execute("DROP USER 'canal'@'%'")
    assert len(results) > 5
    assert [result for result in results if not result.ok and not result.advisory] == []


def commands() -> dict[str, Any]:
    """Commands, and groups of commands, by name."""
    from typer.main import get_command

    from ray_canal.cli import app

    found: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    return found


def options_of(command: Any) -> list[Any]:
    """Of a command, or of all commands of a group."""
    inner = [p for each in getattr(command, "commands", {}).values() for p in options_of(each)]
    return [*(p for p in command.params if p.param_type_name == "option"), *inner]


def test_readme_lists_the_commands_that_there_are() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)(?: [^`]*)?` \| [^|\s]", text, re.MULTILINE)
    assert set(listed) == set(commands())  # a group may have several lines


def test_the_index_has_every_page() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in DOCUMENTS[1:]]
    assert not [page for page in pages if page != "index.md" and f"({page})" not in text]


def test_the_reference_has_every_command_and_option() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert sections.keys() == commands().keys()
    for name, command in commands().items():
        for option in options_of(command):
            named = {*option.opts, *option.secondary_opts}
            assert any(f"`{each}" in sections[name] for each in named), (name, named)


def test_the_reference_has_every_public_call_and_member() -> None:
    text = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(?:canal\.)?(\w+)", text))
    classes = canal.Connector, canal.AsyncConnector, canal.Message, canal.DeadLetters
    names = {*canal.__all__, *canal.spark.__all__}
    for kind in (*classes, SubscriberControl, SnapshotControl):
        names |= {name for name in vars(kind) if not name.startswith("_")}
    assert sorted(names - listed) == []


def test_the_tutorials_folder_has_the_files_of_its_configuration(tmp_path: Path) -> None:
    page = ROOT / "docs/tutorial/first-changes.md"
    (made,) = [block for block in blocks(page, "bash") if "mkdir" in block.text]
    (tmp_path / "ray_canal").symlink_to(ROOT / "ray_canal")
    subprocess.run(["bash", "-ec", made.text], cwd=tmp_path, check=True)
    (tmp_path / "first-changes/canal.toml").write_text(blocks(page, "toml")[0].text)
    files = config.load(tmp_path / "first-changes/canal.toml").instance[0].source.files
    assert files
    assert all(Path(file).is_file() for file in files)


def test_commands_and_options_that_documents_show_exist() -> None:
    for path in DOCUMENTS:
        for shown in re.findall(r"ray-canal ([a-z-]+ [^`\n#]*--[^`\n#]*)", path.read_text("utf-8")):
            name, *words = shown.split()
            options = options_of(commands()[name])
            known = {name for each in options for name in (*each.opts, *each.secondary_opts)}
            given = {re.match(r"[\w-]+", word)[0] for word in words if word.startswith("--")}
            assert given <= known, (path.name, shown)


def test_help_prints_every_word() -> None:
    """Square brackets would be taken for markup, and left out."""
    texts = [command.help for command in commands().values()]
    texts += [getattr(o, "help", None) for c in commands().values() for o in options_of(c)]
    assert len(texts) > 50
    assert not [text for text in texts if re.search(r"\[[a-z.]+\]", text or "")]


def test_the_reference_has_every_error() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    listed: dict[str, bool] = {}
    for cells in re.findall(r"^\| (`.+?) \| .* \| (yes )?\|$", text, re.MULTILINE):
        listed |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), bool(cells[1]))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    known = {kind.__name__: kind for kind in kinds if issubclass(kind, errors.CanalError)}
    for path in (ROOT / "ray_canal").rglob("*.py"):  # others are of one room, and named, too
        found = re.findall(r"^class (\w+)\((\w+)\)", path.read_text("utf-8"), re.MULTILINE)
        for name, base in found:
            assert base not in known or name in {*known, "AttemptVoid"} or f"`{name}`" in text
    groups = {"CanalError", "SourceError", "DecodeError", "ConsumerError", "InstanceError"}
    assert listed == {n: kind.retryable for n, kind in known.items() if n not in groups}
    assert all(f"`{group}`" in text or f".{group}`" in text for group in groups)
