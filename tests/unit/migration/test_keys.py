"""The table of Canal's keys: complete, in step with the configuration and with the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from ray_canal.config import CanalConfig
from ray_canal.config.section import sections_in
from ray_canal.migration.keys import KEYS, Verdict, document, find, is_harmless

ROOT = Path(__file__).parents[3]


def _leads_to(target: str) -> bool:
    section: type[BaseModel] = CanalConfig
    for name in target.split("."):
        info = section.model_fields.get(name)
        if info is None:
            return False
        for part in sections_in(info.annotation):
            section = part
    return True


def test_each_key_is_listed_once_and_answered() -> None:
    names = [key.name for key in KEYS]
    assert len(set(names)) == len(names)
    for key in KEYS:
        if key.verdict is Verdict.MAPPED:
            assert _leads_to(key.target), f"{key.name}: no {key.target} in canal.toml"
        else:
            assert key.note, f"{key.name}: say why"
            assert not key.target


def test_the_page_has_these_tables() -> None:
    page = (ROOT / "docs" / "reference" / "canal-compat.md").read_text(encoding="utf-8")
    assert document() in page, "paste ray_canal.migration.keys.document() into the page"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("canal.port", "canal.port"),
        ("canal.admin.passwd", "canal.admin.*"),
        ("canal.admin.manager", "canal.admin.manager"),
        ("canal.instance.orders.spring.xml", "canal.instance.{destination}.spring.xml"),
        ("canal.instance.global.spring.xml", "canal.instance.global.spring.xml"),
        ("canal.instance.master.trustCertificateKeyStoreUrl",
         "canal.instance.master.trustCertificateKeyStore*"),
        ("canal.instance.rds.open.secretkey", "canal.instance.rds.open.*"),
        ("canal.mq.properties.acks", "canal.mq.properties.*"),
        ("kafka.kerberos.enable", "kafka.kerberos.enable"),
        ("kafka.kerberos.krb5.file", "kafka.kerberos.*"),
        ("kafka.bootstrap.servers", "kafka.*"),
        ("canal.ports", None),
        ("canal_port", None),
        ("my.own", None),
    ],
)  # fmt: skip
def test_find(name: str, line: str | None) -> None:
    key = find(name)
    assert (key and key.name) == line


def test_keys_that_canal_ships_are_known() -> None:
    """Those that stand, commented out or not, in Canal's own files; a sample of each version."""
    shipped = """canal.id canal.ip canal.register.ip canal.port canal.metrics.pull.port canal.user
    canal.passwd canal.admin.manager canal.admin.port canal.admin.user canal.admin.passwd
    canal.admin.register.auto canal.admin.register.cluster canal.admin.register.name canal.zkServers
    canal.zookeeper.flush.period canal.withoutNetty canal.serverMode canal.file.data.dir
    canal.file.flush.period canal.instance.memory.rawEntry canal.instance.detecting.sql
    canal.instance.filter.dml.insert canal.aliyun.uid canal.auto.reset.latest.pos.mode
    canal.instance.pwdPublicKey canal.instance.standby.gtid canal.instance.rds.instanceId
    canal.instance.parser.needWait canal.instance.rds.startTime canal.mq.dynamicTopic
    canal.mq.kafka.kerberos.enable kafka.acks rocketmq.tag rabbitmq.virtual.host
    pulsarmq.roleToken canal.instance.multi.stream.on canal.instance.tsdb.spring.xml"""
    assert [name for name in shipped.split() if find(name) is None] == []


def test_harmless_values() -> None:
    formats = find("canal.instance.binlog.format")
    assert formats is not None
    assert is_harmless(formats, "ROW, STATEMENT,MIXED ")
    assert is_harmless(formats, "")
    assert not is_harmless(formats, "ROW")
    url = find("canal.instance.tsdb.url")
    assert url is not None
    assert is_harmless(url, "jdbc:h2:/x/h2;CACHE_SIZE=1000;MODE=MYSQL;")
    assert not is_harmless(url, "jdbc:mysql://127.0.0.1:3306/canal_tsdb")


def test_the_page_says_nothing_twice() -> None:
    rows = re.findall(r"^\| `(canal\.[^`]+)` \|", document(), re.MULTILINE)
    assert len(rows) == len(set(rows)) > 90
