"""canal.toml from Canal's files: what is written loads, and says what Canal's file said."""

from __future__ import annotations

from pathlib import Path

import pytest
import tzlocal

import ray_canal as canal
from ray_canal.config import CanalConfig
from ray_canal.errors import ConfigError
from ray_canal.migration.convert import Imported, import_canal
from ray_canal.migration.toml_text import render

SERVER = r"""
canal.ip = 10.0.0.1
canal.port = 11112
canal.user = reader
canal.passwd = E3619321C1A937C46A0D8BD1DAC39F93B27D4458
canal.admin.passwd = 4ACFE3202A5FF5CF467898FC58AAB1D615029441
canal.conf.dir = /srv/canal/conf
canal.file.data.dir = ${canal.conf.dir}
canal.instance.memory.buffer.size = 32768
canal.instance.memory.buffer.memunit = 512
canal.instance.memory.batch.mode = ITEMSIZE
canal.instance.get.ddl.isolation = true
canal.instance.network.soTimeout = 40
canal.instance.transaction.size = 512
canal.auto.reset.latest.pos.mode = true
canal.instance.fallbackIntervalInSeconds = 90
canal.instance.global.lazy = true
canal.instance.filter.query.dml = true
canal.instance.filter.dml.delete = true
canal.instance.filter.transaction.entry = true
canal.instance.filter.rows = false
canal.instance.parser.parallelThreadSize = 16
canal.instance.tsdb.enable = true
canal.instance.tsdb.dir = ${canal.file.data.dir:../conf}/${canal.instance.destination:}
canal.instance.tsdb.url = jdbc:h2:${canal.instance.tsdb.dir}/h2;CACHE_SIZE=1000;MODE=MYSQL;
canal.instance.tsdb.snapshot.interval = 12
canal.instance.tsdb.snapshot.expire = 100
canal.destinations = orders
canal.instance.global.spring.xml = classpath:spring/file-instance.xml
"""

INSTANCE = r"""
canal.instance.master.address = db.example:3307
canal.instance.master.sslMode = VERIFY_CA
canal.instance.standby.address = db2.example:3307
canal.instance.detecting.enable = true
canal.instance.detecting.sql = insert into retl.xdual values(1,now())
canal.instance.detecting.interval.time = 7
canal.instance.detecting.retry.threshold = 5
canal.instance.detecting.heartbeatHaEnable = true
canal.instance.dbUsername = canal
canal.instance.dbPassword = s3cret-word
canal.instance.mysql.slaveId = 1234
canal.instance.filter.regex = shop\\..*,crm\\.a_\\d{1,2}
canal.instance.filter.black.regex = mysql\\.slave_.*
canal.instance.filter.field = shop.item:id/name
canal.instance.filter.black.field = shop.customer:phone
"""


def imported(
    tmp_path: Path, server: str = SERVER, overrides: dict[str, str] | None = None, **files: str
) -> Imported:
    path = tmp_path / "canal.properties"
    path.write_text(server)
    for name, text in (files or {"orders": INSTANCE}).items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "instance.properties").write_text(text)
    return import_canal(path, overrides=overrides)


def loaded(tmp_path: Path, found: Imported) -> CanalConfig:
    """What the written file is."""
    out = tmp_path / "canal.toml"
    out.write_text(render(found, ["canal.properties"]), encoding="utf-8")
    return canal.load_config(out)


def test_every_setting_arrives(tmp_path: Path) -> None:
    found = imported(tmp_path)
    assert not found.refused
    config = loaded(tmp_path, found)
    assert config.server is not None
    assert (config.server.host, config.server.port) == ("10.0.0.1", 11112)
    assert config.server.username == "reader"
    assert config.server.password_hash == "env:CANAL_SERVER_PASSWORD_HASH"
    assert (config.meta.backend, config.meta.path) == ("sqlite", "/srv/canal/conf/meta.db")
    orders = config.destination("orders")
    source = orders.source
    assert source.host_port == ("db.example", 3307)
    assert source.standby == ("db2.example:3307",)
    assert source.detect
    assert source.detect_sql == "insert into retl.xdual values(1,now())"
    assert (source.detect_interval_s, source.detect_failures) == (7, 5)
    assert (source.username, source.password) == ("canal", "env:CANAL_ORDERS_PASSWORD")
    assert (source.server_id, source.connect_timeout_s, source.tls.mode) == (1234, 40, "verify_ca")
    assert (source.start, source.gtid) == ("latest", False)
    assert orders.decoders == "auto"  # 16 threads are little, 16 processes are not
    assert orders.filter.tables == r"shop\..*,crm\.a_\d{1,2}"
    assert orders.filter.black_tables == r"mysql\.slave_.*"
    assert orders.filter.fields == "shop.item:id/name"
    assert orders.filter.black_fields == "shop.customer:phone"
    store = orders.store
    assert (store.buffer_size, store.memunit_bytes, store.batch_mode) == (32768, 512, "ITEMSIZE")
    assert store.ddl_isolation
    assert store.transaction_size == 512
    assert (source.on_purged, source.fallback_s, orders.runs) == ("latest", 90, "once_subscribed")
    drops = orders.filter.model_dump(exclude_defaults=True).keys()
    assert drops >= {"query_dml", "dml_delete", "transaction_entry"}
    assert not drops & {"rows", "query_ddl", "query_dcl", "table_error"}
    assert orders.tsdb.path == "/srv/canal/conf/orders/tsdb.db"
    assert (orders.tsdb.snapshot_interval_hours, orders.tsdb.snapshot_expire_hours) == (12, 100)


@pytest.mark.parametrize("ip", ["", "canal.ip = 10.0.0.1\n"])
def test_canals_open_port_is_closed_with_a_notice(tmp_path: Path, ip: str) -> None:
    """C1: without canal.user Canal lets everybody in. That is not taken over in silence."""
    found = imported(tmp_path, f"canal.destinations = orders\n{ip}", orders=INSTANCE)
    server = loaded(tmp_path, found).server
    assert server is not None
    assert server.listens_on == "127.0.0.1"
    (notice,) = [each for each in found.findings if each.key == "canal.user"]
    assert not notice.refused
    assert "insecure = true" in notice.text


@pytest.mark.parametrize(
    ("regex", "subscribers"), [(r"shop\\..*", "replace"), (r".*\\..*", "narrow"), ("", "narrow")]
)
def test_a_clients_filter_counts_as_in_canal(tmp_path: Path, regex: str, subscribers: str) -> None:
    """a2: it takes the place of canal.instance.filter.regex, and that is said."""
    kept = [line for line in INSTANCE.splitlines() if "filter.regex" not in line]
    line = f"canal.instance.filter.regex = {regex}" if regex else ""
    found = imported(tmp_path, SERVER, orders="\n".join([*kept, line]))
    assert loaded(tmp_path, found).destination("orders").filter.subscribers == subscribers
    notices = [each for each in found.findings if each.key == "canal.instance.filter.regex"]
    assert bool(notices) is (subscribers == "replace")


def test_no_secret_is_written_or_shown(tmp_path: Path) -> None:
    instance = (
        INSTANCE
        + """
canal.instance.tsdb.dbPassword = s3cret-tsdb
canal.instance.rds.secretkey = s3cret-rds
canal.instance.master.trustCertificateKeyStorePassword = s3cret-jks
canal.mq.password = s3cret-mq
canal.instance.passwrd = s3cret-typo
"""
    )
    found = imported(tmp_path, SERVER + "kafka.sasl.jaas.config = s3cret-kafka\n", orders=instance)
    said = render(found, []) + "".join(map(str, found.findings))
    for secret in ("s3cret", "E3619321", "4ACFE320"):
        assert secret not in said
    assert "CANAL_ORDERS_PASSWORD" in said
    assert "CANAL_SERVER_PASSWORD_HASH" in said


def test_a_password_from_a_variable_stays_one(tmp_path: Path) -> None:
    text = INSTANCE.replace("s3cret-word", "${DB_PASSWORD:canal}")
    found = loaded(tmp_path, imported(tmp_path, orders=text))
    assert found.destination("orders").source.password == "env:DB_PASSWORD"
    text = INSTANCE.replace("s3cret-word", "")
    found = loaded(tmp_path, imported(tmp_path, orders=text))
    assert found.destination("orders").source.password == ""


def test_canals_defaults_where_nothing_is_said(tmp_path: Path) -> None:
    """Where Canal's default is not ours, Canal's is written."""
    found = imported(tmp_path, "", shop="canal.instance.master.address=db:3306")
    config = loaded(tmp_path, found)
    shop = config.destination("shop")
    assert shop.store.buffer_size == 16384
    assert shop.filter.black_tables == ""
    assert config.server is not None
    assert config.server.port == 11111
    assert any("begins at the log's end" in f.text for f in found.findings)


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        ("", ("latest", "", 4, "", "")),
        ("master.journal.name=bin.000007", ("position", "bin.000007", 4, "", "")),
        ("master.journal.name=b.7\nmaster.position=0", ("position", "b.7", 4, "", "")),
        ("master.journal.name=b.7\nmaster.position=123", ("position", "b.7", 123, "", "")),
        ("master.timestamp=1700000000123", ("timestamp", "", 4, "", "1700000000123")),
        ("master.journal.name=b.7\nmaster.timestamp=99", ("timestamp", "", 4, "", "99")),
        (
            "master.journal.name=b.7\nmaster.position=123\nmaster.timestamp=99",
            ("position", "b.7", 123, "", ""),
        ),
        ("gtidon=true\nmaster.gtid=u:1-5", ("gtid", "", 4, "u:1-5", "")),
        ("gtidon=true\nmaster.gtid=u:1-5\nmaster.journal.name=b.1", ("gtid", "", 4, "u:1-5", "")),
        ("gtidon=false\nmaster.gtid=u:1-5", ("latest", "", 4, "", "")),
    ],
)
def test_where_it_starts(tmp_path: Path, lines: str, start: tuple[str, str, int, str, str]) -> None:
    text = INSTANCE + "".join(f"canal.instance.{line}\n" for line in lines.split("\n") if line)
    source = loaded(tmp_path, imported(tmp_path, orders=text)).destination("orders").source
    found = (source.start, source.journal_name, source.position, source.gtid_set, source.timestamp)
    assert found == start


def test_an_instance_overrides_canal_properties_and_set_overrides_both(tmp_path: Path) -> None:
    server = SERVER + "canal.instance.dbUsername = everybody\ncanal.instance.gtidon = true\n"
    own = INSTANCE + "canal.instance.gtidon = false\n"
    other = "canal.instance.master.address = other:3306\n"
    found = imported(tmp_path, server, {"canal.port": "4711"}, orders=own, other=other)
    config = loaded(tmp_path, found)
    users = [i.source.username for i in config.instance]
    assert users == ["canal", "everybody"]
    assert [i.source.gtid for i in config.instance] == [False, True]
    assert config.server is not None
    assert config.server.port == 4711


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("canal.serverMode = pulsarMQ", "message queues"),
        ("canal.admin.manager = 127.0.0.1:8089", "canal-admin"),
        ("canal.instance.global.mode = manager", "canal-admin"),
        ("canal.instance.global.spring.xml = classpath:spring/group-instance.xml", "group-inst"),
        ("canal.instance.orders.spring.xml = my.xml", "my.xml is not among"),
        ("canal.instance.multi.stream.on = true", "not merged"),
        ("canal.instance.rds.accesskey = key", "not downloaded"),
        ("canal.instance.master.trustCertificateKeyStoreUrl = x.jks", "PEM"),
    ],
)
def test_what_is_not_there_is_refused_with_a_reason(tmp_path: Path, line: str, word: str) -> None:
    found = imported(tmp_path, f"{SERVER}{line}\n")
    (refused,) = found.refused
    assert refused.key == line.partition(" =")[0]
    assert word in refused.text
    assert f"REFUSED {refused}"[:60] in render(found, [])
    assert loaded(tmp_path, found).instance  # it can be written all the same


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("canal.zkServers = zk1:2181", "not in ZooKeeper"),
        ("canal.instance.standby.journal.name = bin.1", "found by GTIDs"),
        ("canal.instance.filter.table.error = true", "quarantine"),
        ("canal.instance.tsdb.url = jdbc:mysql://127.0.0.1:3306/canal_tsdb", "SQLite"),
        ("canal.instance.binlog.format = ROW", "every format"),
        ("canal.instance.connectionCharset = GBK", "character set"),
        ("canal.instance.filter.druid.ddl = false", "one reader"),
        ("canal.instance.enableDruid = true", "plain"),
        ("canal.instance.global.spring.xml = classpath:spring/default-instance.xml", "ZooKeeper"),
        ("canal.instance.masterr.address = x", "was canal.instance.master.address meant?"),
    ],
)
def test_what_is_done_otherwise_is_told(tmp_path: Path, line: str, word: str) -> None:
    found = imported(tmp_path, f"{SERVER}{line}\n")
    assert not found.refused
    assert [f for f in found.findings if f.key == line.partition(" =")[0] and word in f.text]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("canal.port = eleven", "expected a whole number"),
        ("canal.instance.get.ddl.isolation = perhaps", "expected true or false"),
        ("canal.instance.memory.buffer.size = 1000", "power of two"),
        ("canal.instance.memory.batch.mode = BOTH", "MEMSIZE"),
        ("canal.passwd =", "canal.user is set, but canal.passwd is not"),
        ("canal.destinations = orders,gone", "names gone"),
        ("canal.instance.filter.regex = (", "not a regular expression"),
        ("canal.file.data.dir = ${gone}", "--set gone=VALUE"),
    ],
)
def test_values_that_cannot_be_read(tmp_path: Path, line: str, word: str) -> None:
    instance = f"{INSTANCE}{line}\n"
    with pytest.raises(ConfigError, match=word):
        imported(tmp_path, f"{SERVER}{line}\n", orders=instance)


def test_no_instance_at_all(tmp_path: Path) -> None:
    (tmp_path / "canal.properties").write_text("canal.port = 1\n")
    with pytest.raises(ConfigError, match="names no destination"):
        import_canal(tmp_path / "canal.properties")


def test_given_files_alone_count(tmp_path: Path) -> None:
    imported(tmp_path)
    own = tmp_path / "billing.properties"
    own.write_text("canal.instance.master.address = b:3306\n")
    found = import_canal(tmp_path / "canal.properties", [own])
    assert [i["destination"] for i in found.tree["instance"]] == ["billing"]


def test_binlog_files_and_memory(tmp_path: Path) -> None:
    local = """canal.instance.parser.directory = /data/binlog
canal.instance.parser.needWait = true
canal.instance.parser.parallel = false
"""
    server = "canal.instance.a.spring.xml = classpath:spring/local-instance.xml\n"
    config = loaded(tmp_path, imported(tmp_path, server, a=local))
    source = config.destination("a").source
    assert source.files == ("/data/binlog",)
    assert source.follow
    assert config.destination("a").decoders == 0
    server = (
        "canal.withoutNetty = true\n"
        "canal.instance.global.spring.xml = classpath:spring/memory-instance.xml\n"
    )
    (tmp_path / "b").mkdir()
    config = loaded(
        tmp_path,
        imported(tmp_path / "b", server, b="canal.instance.master.address = b:1"),
    )
    assert config.meta.backend == "memory"
    assert config.server is None


def test_the_zone_of_timestamps_is_written_and_told(tmp_path: Path) -> None:
    """a4: Canal prints TIMESTAMP in its JVM's zone; an import without one would shift values."""
    path = tmp_path / "canal.properties"
    path.write_text(SERVER)
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "instance.properties").write_text(INSTANCE)
    found = import_canal(path, time_zone="Asia/Shanghai")
    assert loaded(tmp_path, found).destination("orders").time_zone == "Asia/Shanghai"
    (told,) = [f for f in found.findings if f.key == "time_zone"]
    assert "Asia/Shanghai" in told.text
    here = import_canal(path)
    assert loaded(tmp_path, here).destination("orders").time_zone == tzlocal.get_localzone_name()
    assert any("--time-zone" in f.text for f in here.findings if f.key == "time_zone")
    with pytest.raises(ConfigError, match="no such zone"):
        import_canal(path, time_zone="Asia/Shangai")
