"""Loading: one file, defaults, paths from the file's folder, what is wrong is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ray_canal import config
from ray_canal.config.section import TlsConfig, sections_in
from ray_canal.errors import ConfigError
from tests.unit.config.minimal import MINIMAL, write


def test_minimal_file_has_defaults(tmp_path: Path) -> None:
    canal = config.load(write(tmp_path, MINIMAL))
    instance = canal.destination("orders")
    assert instance.source.host_port == ("db.example", 3307)
    assert instance.decoders == "auto"
    assert canal.meta.backend == "sqlite"


def test_relative_paths_are_taken_from_the_file(tmp_path: Path) -> None:
    text = MINIMAL.replace('address = "db.example:3307"', 'files = ["bin.000001"]')
    canal = config.load(write(tmp_path, '[meta]\npath = "state/meta.db"\n' + text))
    assert canal.meta.path == str(tmp_path / "state/meta.db")
    assert canal.instance[0].source.files == (str(tmp_path / "bin.000001"),)


def test_every_path_and_secret_file_is_taken_from_the_files_folder(tmp_path: Path) -> None:
    """D3: as docs/reference/canal.toml says, whatever the program's own folder is."""
    text = """
[meta]
backend = "mysql"
address = "meta:3306"
password = "file:meta_secret"
tls = { ca = "ca.pem", cert = "c.pem", key = "/etc/k.pem" }
[server]
password = "file:server_secret"
tls = { cert = "s.pem", key = "" }
[[server.user]]
username = "u"
password_hash = "file:user_secret"
[[instance]]
destination = "orders"
source = { address = "db", password = "file:secret", tls = { ca = "ca.pem" }, schema_sql = "s.sql" }
store.spill_path = "spill"
tsdb.path = "history.db"
[[instance]]
destination = "other"
source = { files = ["a.1", "/b.2"], password = "env:FILE" }
"""
    canal = config.load(write(tmp_path, text))
    orders, other = canal.instance
    assert canal.server is not None
    found = [
        canal.meta.password, canal.meta.tls.ca, canal.meta.tls.cert, canal.server.password,
        canal.server.tls.cert, canal.server.user[0].password_hash, orders.source.password,
        orders.source.tls.ca, orders.source.schema_sql, orders.store.spill_path, orders.tsdb.path,
        other.source.files[0],
    ]  # fmt: skip
    names = [
        "file:{}meta_secret", "{}ca.pem", "{}c.pem", "file:{}server_secret", "{}s.pem",
        "file:{}user_secret", "file:{}secret", "{}ca.pem", "{}s.sql", "{}spill", "{}history.db",
        "{}a.1",
    ]  # fmt: skip
    assert found == [name.format(f"{tmp_path}/") for name in names]
    untouched = canal.meta.tls.key, canal.server.tls.key, other.source.files[1]
    assert untouched == ("/etc/k.pem", "", "/b.2")
    assert (other.source.password, orders.source.tls.cert) == ("env:FILE", "")


def test_paths_and_secret_files_of_sinks_are_taken_from_the_files_folder(tmp_path: Path) -> None:
    """A lake's folder, and secrets among options whose names are not ours; addresses stay."""
    options = {
        "delta": 'lake = { path = "lake #1", options = { KEY = "file:key", REGION = "env:R" } }',
        "iceberg": 'lake.options = { type = "sql", warehouse = "file:///wh" }',
        "kafka": 'kafka.properties = { "bootstrap.servers" = "k:9092", key = "file:sasl" }',
    }
    text = MINIMAL + "".join(
        f'\n[[sink]]\nname = "{kind}"\ndestination = "orders"\ntype = "{kind}"\n'
        f"client_id = {number}\n{line}\n"
        for number, (kind, line) in enumerate(options.items(), 1)
    )
    delta, iceberg, kafka = config.load(write(tmp_path, text)).sink
    assert delta.lake.path == f"{tmp_path}/lake #1"
    assert delta.lake.options == {"KEY": f"file:{tmp_path}/key", "REGION": "env:R"}
    assert iceberg.lake.options["warehouse"] == "file:///wh"
    assert kafka.kafka.properties["key"] == f"file:{tmp_path}/sasl"
    on_s3 = text.replace("lake #1", "s3://lake/mysql")
    assert config.load(write(tmp_path, on_s3)).sink[0].lake.path == "s3://lake/mysql"


def test_a_keys_type_names_sections() -> None:
    assert sections_in(tuple[TlsConfig, ...]) == sections_in(TlsConfig | None) == [TlsConfig]
    assert sections_in(TlsConfig) == [TlsConfig]
    assert sections_in(dict[str, str]) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("address", "adress"), "did you mean 'address'"),
        (('address = "', 'host = "'), "did you mean 'address'"),
        (("password", "user = 'u'\npassword"), "did you mean 'username'"),
        (("password", "tables = 'a'\npassword"), "did you mean 'instance.filter.tables'"),
        (('destination = "orders"', 'destination = "or ders"'), "instance.0.destination"),
        (('address = "db.example:3307"', ""), "either `address`"),
        (('password = "env:', 'start = "position"\npassword = "env:'), "needs `journal_name`"),
        (("[[instance]]", "[[instance]]\ndecoders = -1"), "decoders must be"),
        (("[[instance]]", "[store]\n[[instance]]"), "unknown key 'store'"),
        (
            ("[[instance]]", "[[instance]]\nstore.policy = 'wait'"),
            "instance.0.store.policy (orders)",
        ),
        (("[[instance]]", "[instance]"), "instance: write [[instance]], in two brackets"),
        (("[[instance]]", "[[instance"), "is not TOML"),
        ((MINIMAL, ""), "instance: write [[instance]], in two brackets"),
        (("password", r'filter.tables = "a\..*"' + "\npassword"), "in single quotes"),
    ],
)
def test_a_wrong_key_or_value_is_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config.load(write(tmp_path, MINIMAL.replace(*change)))


def test_a_file_with_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "canal.toml"
    text = '[[instance]]\ndestination = "shop"\nsource.address = "db"\n'
    path.write_bytes("# café\n".encode("latin-1") + text.encode())
    with pytest.raises(ConfigError, match=r"canal\.toml is not UTF-8"):
        config.load(path)
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())  # as Notepad saves it
    assert config.load(path).instance[0].destination == "shop"


def test_missing_file() -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        config.load("/nowhere/canal.toml")


def test_a_configuration_of_another_version_is_told_as_such() -> None:
    given = config.load({"instance": [{"destination": "a", "source": {"address": "h:1"}}]})
    assert config.config_of(given.model_dump_json()) == given
    with pytest.raises(ConfigError, match=r"unknown key 'newer'.* same version of ray_canal"):
        config.config_of('{"newer": 1}')
