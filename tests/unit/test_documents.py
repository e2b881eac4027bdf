"""The documents are in step: configuration, architecture, promises, links, commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from ray_canal.config import CanalConfig, SourceConfig, load
from ray_canal.config.section import sections_in
from ray_canal.kernels.base.event_types import NAMES
from ray_canal.types import spatial
from ray_canal.types.registry import WORDS
from tests.unit.test_tidy import PACKAGE, ROOT, modules, room_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ARCHITECTURE_LINES_MAX = 200


NO_DEFAULT = {
    "instance.destination",
    "instance.source.address",
    "server.user.username",
    "sink.name",
    "sink.destination",
    "sink.type",
    "sink.client_id",
    "sink.mirror.address",
    "sink.rabbitmq.address",
    "sink.rocketmq.address",
    "server.user.password",
    "flight.user.username",
    "flight.user.password",
    "console.user.username",
    "console.user.password",
    "console.proxy.addresses",
}
"""Keys for which docs/reference/canal.toml has an example, because something must stand there."""


def _in_step(section: type[BaseModel], tree: dict[str, Any], where: str) -> Iterator[str]:
    for key in tree.keys() - section.model_fields.keys():
        yield f"{where}{key}: the page has it, the program does not"
    for key, info in section.model_fields.items():
        place = f"{where}{key}"
        inner = next(iter(sections_in(info.annotation)), None)
        if place == "sink.transactions":  # TOML has no null
            continue
        if key not in tree:
            yield f"{place}: not in the page"
        elif inner is not None:
            value = tree[key]
            yield from _in_step(inner, value[0] if isinstance(value, list) else value, f"{place}.")
        elif place not in NO_DEFAULT:
            value = tuple(tree[key]) if isinstance(tree[key], list) else tree[key]
            if value != info.default or type(value) is not type(info.default):
                yield f"{place}: the page has {value!r}, the default is {info.default!r}"


def test_docs_canal_toml_has_every_key_with_its_default() -> None:
    path = ROOT / "docs" / "reference" / "canal.toml"
    load(path)
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    wrong = list(_in_step(CanalConfig, tree, ""))
    assert not wrong, "\n".join(wrong)


def test_architecture_is_short_and_names_rooms_and_tests_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= ARCHITECTURE_LINES_MAX
    for room in {room_of(path) for path in modules() if path.parent != PACKAGE}:
        assert f"`{room}/`" in text, f"ARCHITECTURE.md does not know the room {room}"
    _named_tests_exist("ARCHITECTURE.md")


def test_architecture_names_files_and_functions_that_exist() -> None:
    """`room/file.py` `Class.name`: the file is there, and defines what is named after it."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    wrong = []
    for file, name in re.findall(r"`((?:[\w-]+/)+\w+\.py)(?:::\w+)?`(?:\s+`([\w.]+)`)?", text):
        path = next((path for path in (PACKAGE / file, ROOT / file) if path.exists()), None)
        source = "" if path is None else path.read_text(encoding="utf-8")
        names = [each for each in name.split(".") if each and name.count(".md") == 0]
        if path is None or any(not re.search(rf"(def|class) {each}\b", source) for each in names):
            wrong.append(f"{file} {name}")
    assert not wrong, wrong


def test_modules_name_files_that_exist() -> None:
    """What a comment or docstring refers to, as `schema/fit.py` or next to itself."""
    folders = (PACKAGE, ROOT / "tests", ROOT / "benchmarks", ROOT / "jobs")
    there = {path.name for folder in folders for path in folder.rglob("*.py")}
    wrong = []
    for path in modules():
        for name in re.findall(r"(?<![\w*./-])((?:\w+/)*\w+\.py)\b", path.read_text("utf-8")):
            places = [folder / name for folder in (ROOT, PACKAGE, path.parent)]
            exists = any(each.exists() for each in places) if "/" in name else name in there
            if not exists and name != "_record.py":
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong, wrong


def test_the_map_of_a_destination_names_each_of_its_files() -> None:
    folder = PACKAGE / "destination"
    named = set(re.findall(r"\b(\w+\.py)\b", (folder / "__init__.py").read_text(encoding="utf-8")))
    assert named == {path.name for path in folder.glob("*.py")} - {"__init__.py"}


def test_the_files_that_a_chunk_passes_are_counted() -> None:
    """Each of them is there (the test above), and none is named twice."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    way = text[text.index("a chunk is handed on by ") :].partition("Its record")[0]
    files = re.findall(r"`(\w+/\w+\.py)`", way)
    assert files[0] == "source/dump.py"
    assert files[-1] == "client/message.py"
    assert len(files) == len(set(files))
    assert way.startswith(f"a chunk is handed on by {len(files)} files")


def test_each_event_type_is_in_the_documents() -> None:
    page = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    table = page[page.index("| event (number)") : page.index("## An event that cannot")]
    told: set[int] = set()
    for line in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE):
        for first, last in re.findall(r"(\d+)(?:–(\d+))?(?=[,); ])", line):
            told |= set(range(int(first), int(last or first) + 1))
    assert not [f"{number} {NAMES[number]}" for number in NAMES if number not in told]


def test_each_column_type_is_in_the_documents() -> None:
    page = (ROOT / "docs/reference/types.md").read_text(encoding="utf-8")
    told = page[: page.index("Nothing is rounded")].lower()
    families = ("int", "text", "blob")  # "TINYINT … BIGINT", "TEXT family"
    assert "geometry family" in told
    shapes = {word.word for word in spatial.WORDS}
    named = {name for name in WORDS if not name.endswith(families)} - shapes
    assert not [name for name in named if name not in told]


def test_each_start_is_in_the_documents() -> None:
    text = (ROOT / "docs/reference/positions.md").read_text(encoding="utf-8")
    page = text[text.index("| `latest` |") :]
    starts = get_args(get_type_hints(SourceConfig)["start"])
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)[: len(starts)] == list(starts)


def test_promises_name_tests_that_exist() -> None:
    _named_tests_exist("docs/reference/promises.md")


def test_guarantees_name_tests_that_exist() -> None:
    _named_tests_exist("docs/reference/guarantees.md")


def _named_tests_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert named
    for file, test in named:
        assert (ROOT / file).exists(), f"{document} names {file}"
        if test:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]
    wrong = []
    for document in documents:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", document.read_text()):
            if not (document.parent / target).exists():
                wrong.append(f"{document.relative_to(ROOT)}: {target}")
    assert not wrong, "\n".join(wrong)


def test_make_help_knows_every_command() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:]
    assert set(re.findall(r"^## make ([\w-]+)", text, re.MULTILINE)) == set(phony)
    for command in ("make demo", "make test"):
        assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_each_soak_is_part_of_a_command() -> None:
    """`make fuzz` runs tests/fuzz as a program."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    runs = [line for line in makefile.splitlines() if re.search(r"pytest -m '?soak", line)]
    named = {path for line in runs for path in re.findall(r"tests/[\w/.]+", line)} | {"tests/fuzz"}
    wrong, soaks = [], 0
    for path in (ROOT / "tests").rglob("test_*.py"):
        if re.search(r"pytest\.mark\.soak\b", path.read_text(encoding="utf-8")):
            soaks += 1
            file = str(path.relative_to(ROOT))
            if not any(file == name or file.startswith(f"{name}/") for name in named):
                wrong.append(file)
    assert soaks
    assert not wrong, "\n".join(wrong)


NOT_SAID = (
    # pattern, instead
    (r"\banew\b|\bfor ever\b", "again, indefinitely"),
    (r"\bmend(s|ed|ing)?\b", "fix"),
    (r"\bbeside\b", "next to, with"),
    (r"\b[Ww]hoever\b|(?:^|[.:;|] )Who (?!has)", "name the subject"),
    (r"\blets? go of\b|\blooks? on\b|\bin vain\b|\bkept ready\b", "say what is done"),
    (r"\b(is|are) told\b", "name who says it, and how: logged, raised, shown"),
    (r"\bdump of (its|their) own\b|\bown dump\b", "a stream of its own, catch up"),
)
"""Phrases that have to be read twice."""
IN_DOCUMENTS_ALONE = {NOT_SAID[3][0], NOT_SAID[5][0]}
"""Phrases that comments may use."""


@pytest.mark.parametrize(("pattern", "instead"), NOT_SAID)
def test_documents_are_in_plain_words(pattern: str, instead: str) -> None:
    wrong = []
    code = [] if pattern in IN_DOCUMENTS_ALONE else modules()
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *code]:
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            found = re.search(pattern, re.sub(r"`[^`]*`", "``", line))
            if found:
                wrong.append(f"{document.relative_to(ROOT)}:{number}: {found[0]!r}: {instead}")
    assert not wrong, "\n".join(wrong)
