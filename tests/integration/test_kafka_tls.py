"""Kafka by TLS, on Tansu behind a TLS server of the test's."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from ray_canal.sinks.port import SinkError
from ray_canal.sinks.queues.kafka import KafkaSink
from tests.certificates import make_certificate
from tests.in_process_sink import runner_of
from tests.integration.test_kafka import kafka
from tests.servers.tansu import start_tansu


def test_messages_go_by_tls_and_an_unknown_authority_is_named(
    demo_log: None, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with start_tansu(tmp_path, tls=tls) as address:

        def config(authority: Path, **more: Any) -> Any:
            secure = {"security.protocol": "ssl", "ssl.ca.location": str(authority)}
            properties = {"bootstrap.servers": address, **secure}
            return kafka(address, "secure", partitions=1, properties=properties, **more)

        known = config(certificate)
        runner = runner_of(known)
        runner.run(threading.Event())
        assert runner.status.rows > 100
        again = KafkaSink(known)
        assert str(again.open()) == runner.status.cursor
        again.close()
        unknown = KafkaSink(config(make_certificate(other)[0], timeout_s=2))
        with pytest.raises(SinkError, match=r"certificate verify failed.*ssl\.ca\.location"):
            list(unknown.check([]))
