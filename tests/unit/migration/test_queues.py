"""Canal's Kafka mode becomes a sink of each destination."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.config import load
from ray_canal.errors import ConfigError
from ray_canal.migration.convert import import_canal
from ray_canal.migration.toml_text import render

SERVER = """
canal.destinations = orders
canal.serverMode = kafka
canal.instance.global.manager.address = ${canal.admin.manager}
canal.mq.flatMessage = true
canal.mq.database.hash = false
kafka.bootstrap.servers = k1:9092,k2:9092
kafka.acks = all
kafka.retries = 0
kafka.max.request.size = 2097152
kafka.sasl.jaas.config = s3cret
"""
INSTANCE = r"""
canal.instance.master.address = db:3306
canal.mq.topic = example
canal.mq.dynamicTopic = orders:shop\\..*
canal.mq.partitionsNum = 3
canal.mq.partitionHash = shop.item:id^name,.*\\..*:$pk$
"""


def test_kafka_mode_becomes_a_sink(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "canal.properties").write_text(SERVER)
    (tmp_path / "orders" / "instance.properties").write_text(INSTANCE)
    found = import_canal(tmp_path / "canal.properties")
    assert not found.refused
    text = render(found, ["canal.properties"])
    assert "s3cret" not in text
    (tmp_path / "canal.toml").write_text(text)
    sink = load(tmp_path / "canal.toml").sink_named("orders-kafka")
    assert (sink.destination, sink.client_id, sink.message.format) == ("orders", 1001, "flat")
    assert "k1:9092" not in repr(sink)
    assert found.tree["sink"][0]["kafka"]["properties"] == {
        "bootstrap.servers": "k1:9092,k2:9092", "acks": "all", "message.max.bytes": "2097152"
    }  # fmt: skip
    routing = sink.routing
    assert (routing.topic, routing.partitions, routing.database_hash) == ("example", 3, False)
    assert routing.dynamic_topic == r"orders:shop\..*"
    assert routing.partition_hash == r"shop.item:id^name,.*\..*:$pk$"
    assert any(each.key == "kafka.sasl.jaas.config" for each in found.findings)


def test_kafka_mode_without_servers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    server = SERVER.replace("kafka.bootstrap.servers", "kafka.client.id")
    (tmp_path / "canal.properties").write_text(server)
    (tmp_path / "orders" / "instance.properties").write_text(INSTANCE)
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        import_canal(tmp_path / "canal.properties")


RABBIT = """
canal.destinations = orders
canal.serverMode = rabbitMQ
canal.mq.flatMessage = false
rabbitmq.host = mq:5673
rabbitmq.virtual.host = shop
rabbitmq.exchange = canal
rabbitmq.deliveryMode = topic
rabbitmq.queue = changes
rabbitmq.routingKey = shop_#
rabbitmq.username = canal
rabbitmq.password = s3cret
"""


def test_rabbitmq_mode_becomes_a_sink(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "canal.properties").write_text(RABBIT)
    (tmp_path / "orders" / "instance.properties").write_text(INSTANCE)
    found = import_canal(tmp_path / "canal.properties")
    assert not found.refused
    text = render(found, ["canal.properties"])
    assert "s3cret" not in text
    (tmp_path / "canal.toml").write_text(text)
    sink = load(tmp_path / "canal.toml").sink_named("orders-rabbitmq")
    told = sink.rabbitmq
    assert (told.address, told.virtual_host, told.username) == ("mq:5673", "shop", "canal")
    assert (told.exchange, told.exchange_type, told.queue) == ("canal", "topic", "changes")
    assert (told.binding_key, told.routing_key) == ("shop_#", "{topic}")
    assert sink.message.format == "protobuf"
    assert sink.routing.dynamic_topic == r"orders:shop\..*"
    assert sink.routing.partition_hash == ""
    assert any(each.key == "canal.mq.partitionHash" for each in found.findings)
    nowhere = RABBIT.replace("rabbitmq.host", "rabbitmq.hostname")
    (tmp_path / "canal.properties").write_text(nowhere)
    with pytest.raises(ConfigError, match=r"rabbitmq\.host"):
        import_canal(tmp_path / "canal.properties")


ROCKET = """
canal.destinations = orders
canal.serverMode = rocketMQ
rocketmq.namesrv.addr = mq1:9876;mq2:9876
rocketmq.namespace = shop
rocketmq.tag = canal
rocketmq.producer.group = test
"""


def test_rocketmq_mode_becomes_a_sink(tmp_path: Path) -> None:
    """The name server does not tell the proxy's address: what was made of it is to be looked at."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "canal.properties").write_text(ROCKET)
    (tmp_path / "orders" / "instance.properties").write_text(INSTANCE)
    found = import_canal(tmp_path / "canal.properties")
    assert not found.refused
    (tmp_path / "canal.toml").write_text(render(found, ["canal.properties"]))
    sink = load(tmp_path / "canal.toml").sink_named("orders-rocketmq")
    rocket = sink.rocketmq
    assert (rocket.address, rocket.namespace, rocket.tag) == ("mq1:8081", "shop", "canal")
    assert (sink.routing.partitions, sink.message.format) == (3, "flat")
    told = {each.key: each.text for each in found.findings}
    assert "rocketmq.address" in told["rocketmq.namesrv.addr"]
