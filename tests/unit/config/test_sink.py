"""[[sink]]: what does not go together is refused, and the refusal says what does."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ray_canal.config import SinkConfig


def sink(kind: str, **more: Any) -> SinkConfig:
    tree = {"name": "s", "destination": "x", "type": kind, "client_id": 7, **more}
    return SinkConfig.model_validate(tree)


MIRROR = {"address": "db:3306"}
RABBIT = {"address": "mq:5672"}
KAFKA = {"bootstrap.servers": "k:9092"}


@pytest.mark.parametrize(
    ("kind", "more", "told"),
    [
        ("mysql", {"mirror": {**MIRROR, "senders": 2}}, "keeps the order of transactions"),
        ("postgres", {"mirror": {**MIRROR, "senders": 0}}, "greater than or equal to 1"),
        ("postgres", {"mirror": {**MIRROR, "order": "row"}}, "'transaction', 'table' or 'key'"),
        ("duckdb", {"path": "f", "mirror": {"senders": 2, "order": "key"}}, "a DuckDB file"),
        ("kafka", {"kafka": {"properties": {**KAFKA, "transactional.id": "x"},
                             "transactional": False}}, "the sink has one of its own"),
        ("kafka", {"kafka": {"properties": {**KAFKA, "enable.idempotence": "false", "acks": "0"}}},
         "nothing would tell"),
        ("rabbitmq", {"rabbitmq": RABBIT, "message": {"format": "protobuf"},
                      "routing": {"key_changes": "split"}}, '"flat" does'),
        ("rabbitmq", {"rabbitmq": RABBIT, "message": {"format": "arrow"},
                      "routing": {"key_changes": "split"}}, '"flat" does'),
        ("rabbitmq", {"rabbitmq": RABBIT, "message": {"format": "debezium"},
                      "routing": {"key_changes": "split"}}, "take out routing.key_changes"),
        ("rabbitmq", {"rabbitmq": {**RABBIT, "stream": "s-{partition}"},
                      "message": {"format": "avro"}}, "no partitions for rabbitmq.stream"),
        ("rabbitmq", {"rabbitmq": {**RABBIT, "routing_key": "{partition}"},
                      "message": {"format": "avro"}}, "no partitions for rabbitmq.routing_key"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(kind: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        sink(kind, **more)


def test_what_goes_together() -> None:
    found = sink("mysql", mirror={**MIRROR, "order": "key", "senders": 4})
    assert (found.mirror.order, found.mirror.senders) == ("key", 4)
    assert sink("postgres", mirror=MIRROR).mirror.senders == 1
    split = sink("rabbitmq", rabbitmq=RABBIT, routing={"key_changes": "split"})
    assert split.routing.key_changes == "split"
    assert sink("rabbitmq", rabbitmq={**RABBIT, "stream": "{topic}"}).rabbitmq.stream == "{topic}"


@pytest.mark.parametrize("form", ["flat", "debezium", "avro"])
def test_a_process_is_told_of_every_key(form: str) -> None:
    """A sink's own gets its section with all defaults written out."""
    found = sink("rabbitmq", rabbitmq=RABBIT, message={"format": form}, routing={"topic": "p"})
    assert SinkConfig.model_validate(found.model_dump(mode="json")) == found
