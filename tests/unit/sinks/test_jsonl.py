"""A file of JSON lines that are the messages of queues."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ray_canal.demo import binlog_files
from ray_canal.offline import decode_debezium
from ray_canal.sinks.jsonl import JsonLines
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.views.debezium import DebeziumOptions
from tests.in_process_sink import runner_of, sink_config


def written(folder: Path, **message: Any) -> list[Any]:
    path = folder / f"{message['format']}.jsonl"
    config = sink_config("jsonl", path=str(path), message=message, routing={"topic": "p"})
    runner_of(config).run(threading.Event())
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_change_events(demo_log: None, tmp_path: Path) -> None:
    found = written(tmp_path, format="debezium", schemas=True)
    options = DebeziumOptions(prefix="p", ts_us=1)
    lines = map(json.loads, decode_debezium([binlog_files()[0]], options))
    expected = [line["message"] for line in lines if line["message"]]
    for each, plain in zip(found, expected, strict=True):
        assert (
            each["schema"]["name"]
            == f"p.{plain['source']['db']}.{plain['source']['table']}.Envelope"
        )
        assert [each["payload"][name] for name in ("before", "after", "source", "op")] == [
            plain[name] for name in ("before", "after", "source", "op")
        ]


def test_a_full_disk_is_told_by_the_commit_and_not_by_the_close() -> None:
    sink = JsonLines(Path("/dev/full"))
    sink.open()
    sink._lines = ["{}\n"]
    with pytest.raises(SinkError, match="No space left") as refused:
        sink.commit(Cursor(timeline=1, journal_name="b.1", position=4))
    assert refused.value.kind == "retry"
    sink.close()


def test_a_file_that_may_be_opened_later_is_tried_again(tmp_path: Path) -> None:
    for path, kind in ((Path("/proc/none/file"), "retry"), (tmp_path, "fatal")):
        with pytest.raises(SinkError, match=f"cannot write {path}: ") as refused:
            JsonLines(path).open()
        assert refused.value.kind == kind


def test_lines_are_flat_messages(demo_log: None, tmp_path: Path) -> None:
    found = written(tmp_path, format="flat")
    assert {"INSERT", "UPDATE"} <= {line["type"] for line in found}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"message": {"format": "avro"}}, "no JSON"),
        ({"message": {"format": "debezium"}, "routing": {"partition_hash": "a"}}, "partition_hash"),
        ({"message": {"format": "flat"}, "transform": "a:b"}, "without Arrow"),
    ],
)
def test_what_does_not_go_together_is_told(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        sink_config("jsonl", path="x", **keys)
