"""A sink into a RabbitMQ stream on a cluster: `seek` gives the stream again what it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ray_canal as canal
from tests.in_process_sink import until
from tests.integration.test_rabbitmq_streams import name, read_bytes
from tests.servers import Server
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.usefixtures("local_ray")

NAME = "streamed"


def inserted(server: RabbitServer, stream: str) -> list[str]:
    messages = [json.loads(body) for _, body in read_bytes(server, stream)]
    return [row["id"] for m in messages if m["type"] == "INSERT" for row in m["data"]]


def test_a_stream_is_written_again(
    mysql97: Server, rabbitmq_server: RabbitServer, tmp_path: Path
) -> None:
    mysql97.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY)")
    stream, config = name(), tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "meta.db"\n[[instance]]\ndestination = "{NAME}"\n'
        f'source.address = "{mysql97.address}"\nsource.username = "root"\n'
        f"filter.tables = '{NAME}\\..*'\n"
        f'[[sink]]\nname = "stream"\ndestination = "{NAME}"\ntype = "rabbitmq"\nclient_id = 5\n'
        f'rabbitmq.address = "{rabbitmq_server.address}"\nrabbitmq.stream = "{stream}"\n'
        f'rabbitmq.stream_address = "127.0.0.1:{rabbitmq_server.stream_port}"\n'
    )
    canal.start(str(config))
    try:
        canal.start_sinks(str(config))
        mysql97.execute(f"INSERT INTO {NAME}.t VALUES (1), (2), (3)")
        until(lambda: canal.sink_status()["stream"].get("rows", 0) >= 3)
        until(lambda: inserted(rabbitmq_server, stream) == ["1", "2", "3"])
        canal.seek_sink("stream", "earliest")
        mysql97.execute(f"INSERT INTO {NAME}.t VALUES (4)")
        until(lambda: inserted(rabbitmq_server, stream)[-1] == "4")
        assert inserted(rabbitmq_server, stream) == ["1", "2", "3", "1", "2", "3", "4"]
    finally:
        for each in canal.sink_status():
            canal.stop_sink(each)
        canal.stop(NAME)
        mysql97.execute(f"DROP DATABASE IF EXISTS {NAME}")
