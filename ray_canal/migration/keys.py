"""Every key of Canal's canal.properties and instance.properties, and what becomes of it here.

The tables of docs/reference/canal-compat.md are these, line by line; a test keeps them in step.
Keys and defaults: Canal's canal.properties, example/instance.properties and spring/*-instance.xml
of July 2026. A name that ends in `*` stands for all keys that begin so, `{destination}` for any
name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    MAPPED = "mapped"
    """Its value goes to `target`."""
    NOTICE = "notice"
    """Done in another way; the import says how."""
    REFUSED = "refused"
    """Not supported; the import stops unless that is accepted."""
    LEFT = "left out"
    """Without effect here, whatever its value."""


@dataclass(frozen=True, slots=True)
class Key:
    """`harmless`: values (in lower case) that change nothing, so that nothing is said of them; the
    empty one always is."""

    name: str
    verdict: Verdict
    target: str = ""
    note: str = ""
    harmless: tuple[str, ...] = ()


MAPPED, NOTICE, REFUSED, LEFT = Verdict.MAPPED, Verdict.NOTICE, Verdict.REFUSED, Verdict.LEFT

_RAY = "Ray places and restarts the actors"
_ADMIN = "there is no canal-admin; a deployment is one canal.toml"
_QUEUE = (
    "of message queues there are Kafka, RabbitMQ and RocketMQ; programs read by TCP, Python, Spark"
)
_SINK = "with canal.serverMode = kafka, rabbitMQ or rocketMQ: a [[sink]] of that type"
_FIRST = "of 1.1.4; before the later keys, as in Canal"
_REPEATED = "a sink sends again until the broker has confirmed"
_TRACE = "there is no message trace"
_KERBEROS = (
    "the Kafka client from PyPI has no Kerberos: with one that is built with libsasl2 give "
    "sink.kafka.properties sasl.mechanism = GSSAPI"
)
_JKS = "PEM files take the place of Java keystores: export them (`keytool -exportcert -rfc`)"
_RDS = "binlogs archived by Alibaba's RDS are not downloaded; fetch them and read them as files"
_HEALTH = "where there is a standby, it is always on; the connection has its own heartbeat besides"
_PLACE = "the place on a standby is found by GTIDs, commit times or rows"
_SECRET = "written as a reference to an environment variable, never in clear"

OF_KAFKA_1_1_4 = {
    "acks": "acks", "compressionType": "compression.type", "batchSize": "batch.size",
    "lingerMs": "linger.ms", "maxRequestSize": "max.request.size",
}  # fmt: skip
"""Keys behind `canal.mq.` of Canal 1.1.4 and earlier, and Kafka's."""
OF_RABBITMQ_1_1_4 = {
    "vhost": "virtual.host", "exchange": "exchange", "username": "username",
    "password": "password",
}  # fmt: skip

SERVER_KEYS = (
    Key("canal.id", LEFT, note="Canal itself no longer reads it"),
    Key("canal.ip", MAPPED, "server.host"),
    Key("canal.register.ip", LEFT, note=_RAY),
    Key("canal.port", MAPPED, "server.port"),
    Key("canal.metrics.pull.port", LEFT, note="`ray-canal status --json` has the numbers"),
    Key("canal.user", MAPPED, "server.username"),
    Key("canal.passwd", MAPPED, "server.password_hash", _SECRET),
    Key("canal.admin.manager", REFUSED, note=_ADMIN),
    Key("canal.admin.*", LEFT, note=_ADMIN),
    Key("canal.zkServers", NOTICE, note=(
        f"{_RAY}; cursors live where [meta] says, not in ZooKeeper"
    )),
    Key("canal.zookeeper.flush.period", LEFT, note="an ack is durable when it returns"),
    Key("canal.withoutNetty", MAPPED, "server", (
        "true, or a canal.serverMode of message queues: no [server] section, no port"
    )),
    Key(
        "canal.serverMode",
        REFUSED,
        note=_QUEUE,
        harmless=("tcp", "kafka", "rabbitmq", "rabbitMQ", "rocketmq", "rocketMQ"),
    ),
    Key(
        "canal.file.data.dir",
        MAPPED,
        "meta.path",
        "an absolute folder: meta.db in it; a relative one: meta.db next to canal.toml",
    ),
    Key("canal.file.flush.period", LEFT, note="an ack is durable when it returns"),
    Key("canal.destinations", MAPPED, "instance.destination"),
    Key("canal.destinations.expr", MAPPED, "instance.destination", "p{1-3} is p1, p2, p3"),
    Key("canal.conf.dir", LEFT, note="instances are looked for next to canal.properties"),
    Key("canal.auto.scan", LEFT, note="true: every folder next to canal.properties is an instance"),
    Key("canal.auto.scan.interval", LEFT, note="a changed canal.toml counts at the next start"),
    Key("canal.auto.reset.latest.pos.mode", MAPPED, "instance.source.on_purged", (
        "true: latest, with a warning that says what is lost; false: fail"
    )),
    Key("canal.instance.global.mode", REFUSED, note=_ADMIN, harmless=("spring",)),
    Key("canal.instance.global.lazy", MAPPED, "instance.runs", "true: once_subscribed"),
    Key("canal.instance.global.manager.address", LEFT, note=_ADMIN),
    Key("canal.instance.global.spring.xml", MAPPED, "meta.backend", (
        "memory-instance.xml: memory; file- and default-instance.xml: sqlite; "
        "local-instance.xml: binlog files; any other is refused"
    )),
    Key("canal.instance.{destination}.mode", REFUSED, note=_ADMIN, harmless=("spring",)),
    Key("canal.instance.{destination}.lazy", MAPPED, "instance.runs", "true: once_subscribed"),
    Key("canal.instance.{destination}.manager.address", LEFT, note=_ADMIN),
    Key("canal.instance.{destination}.spring.xml", MAPPED, "meta.backend", (
        "as canal.instance.global.spring.xml; [meta] is one for all destinations"
    )),
    Key("canal.aliyun.accessKey", REFUSED, note=_RDS),
    Key("canal.aliyun.secretKey", REFUSED, note=_RDS),
    Key("canal.aliyun.uid", REFUSED, note=_RDS),
)  # fmt: skip
"""Keys of canal.properties alone."""


def _stores(side: str) -> tuple[Key, ...]:
    """The keys of TLS that are no address, for master and standby."""
    prefix = f"canal.instance.{side}."
    return (
        Key(prefix + "tlsVersions", NOTICE, note="the newest that both sides know is used"),
        Key(prefix + "trustCertificateKeyStore*", REFUSED, note=f"{_JKS}, source.tls.ca"),
        Key(prefix + "clientCertificateKeyStore*", REFUSED,
            note=f"{_JKS}, source.tls.cert and source.tls.key"),
    )  # fmt: skip


EVENT_FILTERS = (
    "query.dcl", "query.dml", "query.ddl", "dml.insert", "dml.update", "dml.delete", "rows",
    "transaction.entry", "table.error",
)  # fmt: skip

INSTANCE_KEYS = (
    Key("canal.instance.destination", LEFT, note="Canal sets it: the name of the folder"),
    Key("canal.instance.master.address", MAPPED, "instance.source.address"),
    Key("canal.instance.master.journal.name", MAPPED, "instance.source.journal_name"),
    Key("canal.instance.master.position", MAPPED, "instance.source.position"),
    Key("canal.instance.master.timestamp", MAPPED, "instance.source.timestamp"),
    Key("canal.instance.master.gtid", MAPPED, "instance.source.gtid_set"),
    Key("canal.instance.master.sslMode", MAPPED, "instance.source.tls.mode"),
    *_stores("master"),
    Key("canal.instance.standby.address", MAPPED, "instance.source.standby"),
    Key("canal.instance.standby.journal.name", NOTICE, note=_PLACE),
    Key("canal.instance.standby.position", NOTICE, note=_PLACE),
    Key("canal.instance.standby.timestamp", NOTICE, note=_PLACE),
    Key("canal.instance.standby.gtid", NOTICE, note=_PLACE),
    Key("canal.instance.standby.sslMode", NOTICE, note="source.tls is for all servers of a source"),
    *_stores("standby"),
    Key("canal.instance.dbUsername", MAPPED, "instance.source.username"),
    Key("canal.instance.dbPassword", MAPPED, "instance.source.password", _SECRET),
    Key("canal.instance.defaultDatabaseName", LEFT, note="no database is chosen at the server"),
    Key("canal.instance.connectionCharset", NOTICE, harmless=("utf-8", "utf8", "utf8mb4"), note=(
        "each column is read in its own character set"
    )),
    Key("canal.instance.connectionCharsetNumber", LEFT, note=(
        "each column is read in its own character set"
    )),
    Key("canal.instance.enableDruid", NOTICE, harmless=("false",), note=(
        "the password is encrypted in Canal's file; the environment variable must hold it plain"
    )),
    Key("canal.instance.pwdPublicKey", LEFT, note="see canal.instance.enableDruid"),
    Key("canal.instance.mysql.slaveId", MAPPED, "instance.source.server_id"),
    Key("canal.instance.gtidon", MAPPED, "instance.source.gtid"),
    Key("canal.instance.rds.accesskey", REFUSED, note=_RDS),
    Key("canal.instance.rds.secretkey", REFUSED, note=_RDS),
    Key("canal.instance.rds.open.*", LEFT, note=_RDS),
    Key("canal.instance.rds.*", LEFT, note=_RDS),
    Key("canal.instance.multi.stream.on", REFUSED, harmless=("false",), note=(
        "PolarDB-X's streams are not merged; make each a destination"
    )),
    Key("canal.instance.detecting.enable", MAPPED, "instance.source.detect", _HEALTH),
    Key("canal.instance.detecting.sql", MAPPED, "instance.source.detect_sql"),
    Key("canal.instance.detecting.interval.time", MAPPED, "instance.source.detect_interval_s"),
    Key("canal.instance.detecting.retry.threshold", MAPPED, "instance.source.detect_failures"),
    Key("canal.instance.detecting.heartbeatHaEnable", LEFT, note=(
        "where there is a standby, the switch to it is automatic"
    )),
    Key("canal.instance.fallbackIntervalInSeconds", MAPPED, "instance.source.fallback_s"),
    Key("canal.instance.network.receiveBufferSize", LEFT, note=(
        "source.receive_buffer_bytes is 4 MiB; Canal's 16 KiB would slow it down"
    )),
    Key("canal.instance.network.sendBufferSize", LEFT, note="next to nothing is sent"),
    Key("canal.instance.network.soTimeout", MAPPED, "instance.source.connect_timeout_s"),
    Key("canal.instance.binlog.format", NOTICE, harmless=("row,statement,mixed",), note=(
        "every format is read, with a warning where it is not ROW (by `ray-canal check`, too)"
    )),
    Key("canal.instance.binlog.image", NOTICE, harmless=("full,minimal,noblob",), note=(
        "every row image is read; `ray-canal check` says what the server writes"
    )),
    Key("canal.instance.parser.parallel", MAPPED, "instance.decoders", "false: 0"),
    Key("canal.instance.parser.parallelThreadSize", LEFT, note=(
        "Canal's are threads of one process; `decoders`, which are processes, follow the CPUs"
    )),
    Key("canal.instance.parser.parallelBufferSize", LEFT, note="chunk_bytes is what counts here"),
    Key("canal.instance.parser.directory", MAPPED, "instance.source.files", (
        "with local-instance.xml"
    )),
    Key("canal.instance.parser.needWait", MAPPED, "instance.source.follow", (
        "with local-instance.xml"
    )),
    Key("canal.instance.filter.regex", MAPPED, "instance.filter.tables"),
    Key("canal.instance.filter.black.regex", MAPPED, "instance.filter.black_tables"),
    Key("canal.instance.filter.field", MAPPED, "instance.filter.fields"),
    Key("canal.instance.filter.black.field", MAPPED, "instance.filter.black_fields"),
    *(
        Key(f"canal.instance.filter.{name}", MAPPED, f"instance.filter.{name.replace('.', '_')}")
        for name in EVENT_FILTERS
    ),
    Key("canal.instance.filter.druid.ddl", NOTICE, harmless=("true",), note=(
        "there is one reader of DDL"
    )),
    Key("canal.instance.get.ddl.isolation", MAPPED, "instance.store.ddl_isolation"),
    Key("canal.instance.transaction.size", MAPPED, "instance.store.transaction_size"),
    Key("canal.instance.memory.buffer.size", MAPPED, "instance.store.buffer_size"),
    Key("canal.instance.memory.buffer.memunit", MAPPED, "instance.store.memunit_bytes"),
    Key("canal.instance.memory.batch.mode", MAPPED, "instance.store.batch_mode"),
    Key("canal.instance.memory.rawEntry", LEFT, note="entries are rendered once, by the reader"),
    Key("canal.instance.tsdb.enable", MAPPED, "instance.tsdb.enable"),
    Key("canal.instance.tsdb.dir", MAPPED, "instance.tsdb.path", (
        "an absolute folder: tsdb.db in it; a relative one: next to the cursors"
    )),
    Key("canal.instance.tsdb.url", NOTICE, harmless=("jdbc:h2:*",), note=(
        "the history is a SQLite file; it begins again with the catalog at the first start"
    )),
    Key("canal.instance.tsdb.dbUsername", LEFT, note="the history is a SQLite file"),
    Key("canal.instance.tsdb.dbPassword", LEFT, note="the history is a SQLite file"),
    Key("canal.instance.tsdb.snapshot.interval", MAPPED, "instance.tsdb.snapshot_interval_hours"),
    Key("canal.instance.tsdb.snapshot.expire", MAPPED, "instance.tsdb.snapshot_expire_hours"),
    Key("canal.instance.tsdb.spring.xml", LEFT, note="the history is a SQLite file"),
)  # fmt: skip
"""Keys of instance.properties; in canal.properties they are defaults for all instances."""

QUEUE_KEYS = (
    Key("canal.mq.topic", MAPPED, "sink.routing.topic", _SINK),
    Key("canal.mq.dynamicTopic", MAPPED, "sink.routing.dynamic_topic"),
    Key("canal.mq.partition", MAPPED, "sink.routing.partition"),
    Key("canal.mq.partitionsNum", MAPPED, "sink.routing.partitions"),
    Key("canal.mq.partitionHash", MAPPED, "sink.routing.partition_hash"),
    Key("canal.mq.dynamicTopicPartitionNum", MAPPED, "sink.routing.dynamic_topic_partitions"),
    Key("canal.mq.enableDynamicQueuePartition", NOTICE, harmless=("false",), note=(
        "a topic is not asked how many queues it has: sink.routing.partitions says it"
    )),
    Key("canal.mq.database.hash", MAPPED, "sink.routing.database_hash"),
    Key("canal.mq.flatMessage", MAPPED, "sink.message.format", "false: protobuf"),
    Key("canal.mq.servers", MAPPED, "sink", f"the address of the mode's servers, {_FIRST}"),
    *(
        Key(f"canal.mq.{old}", MAPPED, "sink.kafka.properties", f"{new}, {_FIRST}")
        for old, new in OF_KAFKA_1_1_4.items()
    ),
    Key("canal.mq.properties.*", MAPPED, "sink.kafka.properties"),
    *(
        Key(f"canal.mq.{old}", MAPPED, "sink.rabbitmq", f"rabbitmq.{new}, of 1.1.4")
        for old, new in OF_RABBITMQ_1_1_4.items()
    ),
    Key("canal.mq.namespace", MAPPED, "sink.rocketmq.namespace", _FIRST),
    Key("canal.mq.canalBatchSize", LEFT, note="sink.batch_size says how much a commit has"),
    Key("canal.mq.canalGetTimeout", LEFT, note="changes are sent as they come"),
    *(
        Key(f"canal.mq.{name}", LEFT, note="messages are rendered and sent as batches")
        for name in ("send.thread.size", "build.thread.size", "parallelThreadSize")
    ),
    *(
        Key(f"canal.mq.{name}", LEFT, note=_REPEATED)
        for name in ("retries", "bufferMemory", "producerGroup")
    ),
    Key("canal.mq.transaction", LEFT, note="sink.kafka.transactional is true"),
    *(
        Key(name, NOTICE, harmless=(harmless,) if harmless else (), note=_TRACE)
        for name, harmless in (
            ("canal.mq.accessChannel", "local"), ("canal.mq.enableMessageTrace", "false"),
            ("canal.mq.customizedTraceTopic", ""), ("rocketmq.enable.message.trace", "false"),
            ("rocketmq.customized.trace.topic", ""),
        )
    ),
    Key("canal.mq.aliyunuid", NOTICE, note=(
        "Alibaba's signed logins are not made: give sink.rabbitmq a username and a password"
    )),
    Key("canal.mq.kafka.kerberos.enable", REFUSED, note=_KERBEROS, harmless=("false",)),
    Key("canal.mq.kafka.kerberos.*", LEFT, note=_KERBEROS),
    Key("kafka.kerberos.enable", REFUSED, note=_KERBEROS, harmless=("false",)),
    Key("kafka.kerberos.*", LEFT, note=_KERBEROS),
    Key("kafka.*", MAPPED, "sink.kafka.properties"),
    Key("rocketmq.namesrv.addr", MAPPED, "sink.rocketmq.address"),
    Key("rocketmq.namespace", MAPPED, "sink.rocketmq.namespace"),
    Key("rocketmq.tag", MAPPED, "sink.rocketmq.tag"),
    Key("rocketmq.*", LEFT, note=_REPEATED),
    Key("rabbitmq.*", MAPPED, "sink.rabbitmq"),
    Key("pulsarmq.*", LEFT, note=_QUEUE),
)  # fmt: skip
"""Keys of message queues, wherever they stand. Those that begin with a mode's name are its own."""

KEYS: tuple[Key, ...] = (*SERVER_KEYS, *INSTANCE_KEYS, *QUEUE_KEYS)

_EXACT = {key.name: key for key in KEYS if not set("*{") & set(key.name)}
_PATTERNS = [
    (re.compile(re.escape(key.name).replace(r"\*", ".*").replace(r"\{destination\}", ".+")), key)
    for key in KEYS
    if key.name not in _EXACT
]


def find(name: str) -> Key | None:
    """The line for a key; None: Canal does not know it either."""
    exact = _EXACT.get(name)
    if exact is not None:
        return exact
    return next((key for pattern, key in _PATTERNS if pattern.fullmatch(name)), None)


def queue_keys(mode: str) -> tuple[Key, ...]:
    """Return the lines of a mode of message queues: what all have, and its own."""
    own = ("canal.mq.", f"{mode}.")
    others = () if mode == "kafka" else ("canal.mq.kafka.",)
    return tuple(
        key for key in QUEUE_KEYS if key.name.startswith(own) and not key.name.startswith(others)
    )


def is_harmless(key: Key, value: str) -> bool:
    """Return whether this value changes nothing."""
    text = value.replace(" ", "").lower()
    return not text or any(
        text.startswith(known[:-1]) if known.endswith("*") else text == known
        for known in key.harmless
    )


def document() -> str:
    """The tables of docs/reference/canal-compat.md."""
    lines = []
    for title, keys in (
        ("canal.properties", SERVER_KEYS),
        ("instance.properties", INSTANCE_KEYS),
        ("Message queues", QUEUE_KEYS),
    ):
        lines += [f"**{title}**", "", "| Canal's key | in canal.toml | |", "|---|---|---|"]
        for key in keys:
            target = f"`{key.target}`" if key.verdict is MAPPED else key.verdict.value
            note = key.note
            if key.harmless:
                values = ", ".join(f"`{value}`" for value in key.harmless)
                note += f" ({values}: nothing to say)"
            lines.append(f"| `{key.name}` | {target} | {note} |")
        lines.append("")
    return "\n".join(lines)
