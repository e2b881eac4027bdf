"""Our queue messages against those that Canal made of the same binlogs, byte for byte.

Where our entries differ from Canal's (differences.tsv names each), messages do: there the plain
rendering of our entries is the judge, and it is itself held to Canal's output by Canal's entries.
"""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.cli import app
from ray_canal.offline import decode_entries, decode_messages
from ray_canal.views.flat import FlatOptions
from ray_canal.views.routing import Routing
from tests.golden import GOLDEN, GTIDLOG, split_delimited
from tests.golden.differences import committed
from tests.golden.flat_reference import TS_MS, Line, lines

MYSQL = GOLDEN / "mysql97"
DIFFERS = {name for name, found in committed().items() if any(
    line[3] != "journal-name" for line in found
)}


@dataclass(frozen=True)
class Case:
    expected: str
    binlog: str
    form: str
    routing: Routing

    def __str__(self) -> str:
        return self.expected

    def canal(self) -> list[str]:
        return (GOLDEN / "flat" / self.expected).read_text("utf-8").split("\n")[:-1]

    def canal_entries(self) -> list[bytes]:
        messages = split_delimited((MYSQL / f"{self.binlog}.tsdb.pb").read_bytes())
        return [m for m in messages if pb.Entry.FromString(m).entryType != GTIDLOG]


def cases() -> list[Case]:
    found = []
    for text in (GOLDEN / "flat" / "cases.tsv").read_text("utf-8").splitlines():
        words = ["" if word == "-" else word for word in text.split("\t")]
        expected, binlog, form, partitions, by, topics, numbers = words
        routing = Routing(
            partitions=int(partitions), partition_hash=by, dynamic_topic=topics,
            dynamic_topic_partitions=numbers,
        )  # fmt: skip
        found.append(Case(expected, binlog, form, routing))
    return found


FLAT = [case for case in cases() if case.form == "flat"]
IN_PROTOBUF = [case for case in cases() if case.form == "entry"]


def printed(found: list[Line]) -> list[str]:
    return [
        f'{{"topic":"{line.topic}","partition":{line.partition},"message":{line.message}}}'
        for line in found
    ]


def ours(case: Case, binlog: Path) -> list[str]:
    options = FlatOptions(ts_ms=TS_MS, routing=case.routing)
    found = decode_messages([binlog], options, as_entries=case.form == "entry")
    return b"".join(found).decode().split("\n")[:-1]


@pytest.mark.parametrize("case", FLAT, ids=str)
def test_the_plain_rendering_is_canals(case: Case) -> None:
    assert printed(lines(case.canal_entries(), case.routing)) == case.canal()


@pytest.mark.parametrize("case", FLAT, ids=str)
def test_messages_are_canals_but_where_entries_differ(case: Case) -> None:
    binlog = MYSQL / f"{case.binlog}.binlog"
    found = ours(case, binlog)
    entries = [m for data in decode_entries([binlog]) for m in split_delimited(data)]
    assert found == printed(lines(entries, case.routing))
    if f"mysql97/{case.binlog}.tsdb.pb" not in DIFFERS:
        assert found == case.canal()


@pytest.mark.parametrize("case", IN_PROTOBUF, ids=str)
def test_entries_and_packets_are_canals(case: Case, tmp_path: Path) -> None:
    assert f"mysql97/{case.binlog}.tsdb.pb" not in DIFFERS
    binlog = tmp_path / "mysql_dml.binlog"
    shutil.copy(MYSQL / f"{case.binlog}.binlog", binlog)
    found = [json.loads(line) for line in ours(case, binlog)]
    expected = [json.loads(line) for line in case.canal()]
    assert found == expected
    assert any(len(base64.b64decode(each["packet"])) > 0 for each in found)


def test_the_command_line(tmp_path: Path) -> None:
    case = next(case for case in cases() if case.expected == "mysql_dml.mixed.jsonl")
    routing, output = case.routing, tmp_path / "out.jsonl"
    arguments = [
        "decode", str(MYSQL / f"{case.binlog}.binlog"), "--format", "flat", "--topic", "example",
        "--partitions", str(routing.partitions), "--partition-hash", routing.partition_hash,
        "--dynamic-topic", routing.dynamic_topic, "--dynamic-topic-partitions",
        routing.dynamic_topic_partitions, "--batch-entries", "50", "--ts", str(TS_MS),
        "-o", str(output),
    ]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert output.read_text("utf-8").split("\n")[:-1] == case.canal()
