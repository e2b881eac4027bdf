"""Canal's Kafka mode becomes a sink of each destination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def sink_and_notes(folder: Path, server: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The one sink that is made of a canal.properties, and what is said of its keys."""
    (folder / "orders").mkdir()
    (folder / "canal.properties").write_text(server)
    (folder / "orders" / "instance.properties").write_text(INSTANCE)
    found = import_canal(folder / "canal.properties")
    return found.tree["sink"][0], {each.key: each.text for each in found.findings}


OLD_KEYS = """
canal.destinations = orders
canal.mq.servers = {servers}
canal.mq.retries = 0
canal.mq.canalBatchSize = 50
canal.mq.flatMessage = true
"""


def test_keys_of_1_1_4_count_and_come_before_those_of_later_versions(tmp_path: Path) -> None:
    """Canal puts their values in place of the newer keys', so a list of brokers is no default's."""
    server = OLD_KEYS.format(servers="k1:9092,k2:9092") + """
canal.serverMode = kafka
canal.mq.maxRequestSize = 5242880
canal.mq.compressionType = snappy
canal.mq.lingerMs = 100
canal.mq.batchSize = 32768
kafka.bootstrap.servers = 127.0.0.1:9092
kafka.linger.ms = 1
"""
    sink, _ = sink_and_notes(tmp_path, server)
    assert sink["kafka"]["properties"] == {
        "bootstrap.servers": "k1:9092,k2:9092", "linger.ms": "100", "message.max.bytes": "5242880",
        "compression.type": "snappy", "batch.size": "32768",
    }  # fmt: skip


def test_a_rabbitmq_of_1_1_4_has_its_user_and_exchange(tmp_path: Path) -> None:
    server = OLD_KEYS.format(servers="mq:5673") + """
canal.serverMode = rabbitMQ
canal.mq.vhost = shop
canal.mq.exchange = canal
canal.mq.username = reader
canal.mq.password = s3cret
"""
    sink, notes = sink_and_notes(tmp_path, server)
    assert sink["rabbitmq"] == {
        "address": "mq:5673", "virtual_host": "shop", "exchange": "canal", "username": "reader",
        "password": "env:RABBITMQ_PASSWORD",
    }  # fmt: skip
    assert "RABBITMQ_PASSWORD" in notes["canal.mq.password"]


@pytest.mark.parametrize("key", ["kafka.acks", "canal.mq.acks"])
def test_acks_that_idempotent_producers_refuse_are_not_taken_over(tmp_path: Path, key: str) -> None:
    sink, notes = sink_and_notes(tmp_path, SERVER.replace("kafka.acks = all", f"{key} = 1"))
    assert "acks" not in sink["kafka"]["properties"]
    assert "acks=all" in notes[key]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("canal.mq.flatMesage = false", "was canal.mq.flatMessage meant"),
        ("canal.mq.enableDynamicQueuePartition = true", "routing.partitions"),
        ("canal.mq.accessChannel = cloud", "message trace"),
        ("kafka.kerberos.enable = true", "libsasl2"),
        ("canal.mq.kafka.kerberos.enable = true", "libsasl2"),
    ],
)
def test_what_a_queue_does_not_get_is_told(tmp_path: Path, line: str, word: str) -> None:
    _, notes = sink_and_notes(tmp_path, f"{SERVER}{line}\n")
    assert word in notes[line.partition(" ")[0]]


def test_what_canal_ships_for_queues_is_quiet(tmp_path: Path) -> None:
    """Each mode's own keys alone are looked at, and what has no effect is not mentioned."""
    shipped = """
canal.mq.canalBatchSize = 50
canal.mq.canalGetTimeout = 100
canal.mq.accessChannel = local
canal.mq.send.thread.size = 30
canal.mq.build.thread.size = 8
canal.mq.enableDynamicQueuePartition = false
kafka.kerberos.enable = false
kafka.kerberos.krb5.file = "../conf/kerberos/krb5.conf"
kafka.kerberos.jaas.file = "../conf/kerberos/jaas.conf"
rocketmq.enable.message.trace = true
rabbitmq.password = s3cret
"""
    _, notes = sink_and_notes(tmp_path, SERVER + shipped)
    said = {key for key in notes if "mq." in key or key.startswith("kafka.")}
    assert said == {"kafka.sasl.jaas.config"}


def test_flags_are_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"canal\.mq\.flatMessage = 'fasle'"):
        sink_and_notes(tmp_path, SERVER.replace("flatMessage = true", "flatMessage = fasle"))


def test_a_queue_mode_has_no_port_as_in_canal(tmp_path: Path) -> None:
    sink_and_notes(tmp_path, SERVER)
    assert "server" not in import_canal(tmp_path / "canal.properties").tree


def test_the_keys_of_alibabas_cloud_sign_calls_of_rocketmq(tmp_path: Path) -> None:
    keys = "canal.aliyun.accessKey = me\ncanal.aliyun.secretKey = s3cret\n"
    sink, notes = sink_and_notes(tmp_path, ROCKET + keys)
    assert sink["rocketmq"]["access_key"] == "env:ROCKETMQ_ACCESS_KEY"
    assert sink["rocketmq"]["secret_key"] == "env:ROCKETMQ_SECRET_KEY"
    assert "ROCKETMQ_SECRET_KEY" in notes["canal.aliyun.secretKey"]


def test_another_modes_keys_are_not_looked_at(tmp_path: Path) -> None:
    _, notes = sink_and_notes(tmp_path, RABBIT + "canal.mq.kafka.kerberos.enable = true\n")
    assert "canal.mq.kafka.kerberos.enable" not in notes
