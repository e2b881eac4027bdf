"""Kafka, and a process of the sink that is killed: each message once, or none lost.

tests/integration/test_kafka.py says which brokers these are."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from ray_canal.demo import binlog_files
from tests.integration.test_kafka import (
    each_is_there_once,
    expected,
    kafka,
    made,
    sender,
    senders,
    shown,
)
from tests.sink_runs import killed, random_steps, without_repeats

__all__ = ["sender"]  # a fixture

STEPS = ("open:1:before", "open:1:after", "write:1:after", "write:3:before", "commit:2:flushed",
         "commit:1:after", "commit:2:after", "write:5:after", "commit_transaction:3:flushed",
         "begin_transaction:2:after", "commit_transaction:1:flushed")  # fmt: skip
"""With nothing in the log that is not committed, with rows, and with rows and their place."""


def run_killed(
    address: str, folder: Path, sender: str, steps: Sequence[str], batch_size: int = 8
) -> None:
    """The sink in a process of its own, killed at each of the steps, then run to the end."""
    topic = made(address)
    config = kafka(address, topic, sender=sender).model_copy(update={"batch_size": batch_size})
    ends = killed(folder, config, {"files": [str(binlog_files()[0])]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    each_is_there_once(address, topic)


@senders
def test_killed_at_every_step_each_message_is_there_once(
    broker: str, tmp_path: Path, sender: str
) -> None:
    run_killed(broker, tmp_path, sender, STEPS)


@pytest.mark.parametrize("fixture", ["mock_kafka", "broker"])
def test_killed_without_transactions_none_is_lost(
    fixture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What is sent again begins at the last commit, and has the order of the first time. (Tansu
    says that a log without transactions ends before its last batch.)"""
    if fixture == "broker":
        request.getfixturevalue("kafka_alone")
    address = request.getfixturevalue(fixture)
    topic = made(address) if fixture == "broker" else f"again-{uuid.uuid4().hex}"
    config = kafka(address, topic, transactional=False)
    steps = "write:3:after", "commit:2:flushed"
    ends = killed(tmp_path, config, {"files": [str(binlog_files()[0])]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    found = shown(address, topic)
    assert [without_repeats(each) for each in found] == expected()
    assert sum(map(len, found)) > sum(map(len, expected())), "nothing came again"


@pytest.mark.soak
def test_killed_at_random_steps(broker: str, tmp_path: Path, sender: str) -> None:
    methods = "write", "commit", "commit_transaction"
    steps = random_steps(*methods, whens=("before", "flushed", "after"))
    run_killed(broker, tmp_path, sender, steps, batch_size=1)
