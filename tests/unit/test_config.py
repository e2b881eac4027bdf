"""The configuration: one file, unknown keys refused with the nearest one, secrets by reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ray_canal import config
from ray_canal.errors import ConfigError

MINIMAL = """
[[instance]]
destination = "orders"
[instance.source]
address = "db.example:3307"
password = "env:CANAL_PASSWORD"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "canal.toml"
    path.write_text(text)
    return path


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


@pytest.mark.parametrize(
    ("address", "host_port"),
    [
        ("db", ("db", 3306)),
        ("db.example.com:3307", ("db.example.com", 3307)),
        ("10.0.0.7:3307", ("10.0.0.7", 3307)),
        ("[::1]:3307", ("::1", 3307)),
        ("[::1]", ("::1", 3306)),
        ("::1", ("::1", 3306)),
        ("fe80::1:3306", ("fe80::1:3306", 3306)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
    ],
)
def test_addresses(address: str, host_port: tuple[str, int]) -> None:
    """D3: with and without a port, also of IPv6."""
    assert config.SourceConfig(address=address).host_port == host_port
    meta = config.MetaConfig(backend="mysql", address=address)
    assert meta.host_port(3306) == host_port


@pytest.mark.parametrize(
    "address", ["db:", ":3306", "db:port", "db:99999", "db:0", "[::1", "a b:1", "1:2:3", "[::1]x"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"expected host:port, or \[IPv6\]:port"):
        _ = config.SourceConfig(address=address).host_port


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("address", "adress"), "did you mean 'address'"),
        (('destination = "orders"', 'destination = "or ders"'), "instance.0.destination"),
        (('address = "db.example:3307"', ""), "either `address`"),
        (('password = "env:', 'start = "position"\npassword = "env:'), "needs `journal_name`"),
        (("[[instance]]", "[[instance]]\ndecoders = -1"), "decoders must be"),
        (("[[instance]]", "[store]\n[[instance]]"), "unknown key 'store'"),
        (("[[instance]]", "[[instance"), "is not TOML"),
    ],
)
def test_a_wrong_key_or_value_is_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        config.load(write(tmp_path, MINIMAL.replace(*change)))


def test_ring_size_must_be_a_power_of_two(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="power of two"):
        config.load(write(tmp_path, MINIMAL + "[instance.store]\nbuffer_size = 1000\n"))


@pytest.mark.parametrize("name", [".", "..", "..."])
def test_dots_alone_name_no_destination(name: str) -> None:
    """C5: what is a path to another folder is no name of a folder."""
    with pytest.raises(ConfigError, match="dots alone are no name"):
        config.load({"instance": [{"destination": name, "source": {"address": "db"}}]})


def test_two_instances_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unique"):
        config.load(write(tmp_path, MINIMAL + MINIMAL))


def test_missing_file() -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        config.load("/nowhere/canal.toml")


def test_unknown_destination_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has orders"):
        config.load(write(tmp_path, MINIMAL)).destination("items")


def test_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANAL_TEST_SECRET", "s3cret")
    (tmp_path / "password").write_text("from file\n")
    assert config.secret("env:CANAL_TEST_SECRET") == "s3cret"
    assert config.secret(f"file:{tmp_path / 'password'}") == "from file"
    assert config.secret("plain") == "plain"
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        config.secret("env:NO_SUCH_VARIABLE")
    with pytest.raises(ConfigError, match="cannot read secret file"):
        config.secret("file:/nowhere")


@pytest.mark.parametrize(
    ("server", "listens_on"),
    [
        ({}, "127.0.0.1"),
        ({"password": "p"}, "0.0.0.0"),
        ({"password_hash": "env:X"}, "0.0.0.0"),
        ({"user": [{"username": "u", "password": "p"}]}, "0.0.0.0"),
        ({"tls": {"cert": "c", "ca": "a"}}, "0.0.0.0"),
        ({"tls": {"cert": "c"}}, "127.0.0.1"),
        ({"insecure": True}, "0.0.0.0"),
        ({"insecure": True, "host": "10.0.0.1"}, "10.0.0.1"),
        ({"password": "p", "host": "::"}, "::"),
        ({"host": "localhost"}, "localhost"),
        ({"host": "127.0.1.1"}, "127.0.1.1"),
        ({"host": "::1"}, "::1"),
    ],
)
def test_where_the_port_listens(server: dict[str, object], listens_on: str) -> None:
    """C1: on all addresses only where clients are asked who they are, or it is said to be open."""
    found = config.ServerConfig.model_validate(server)
    assert found.listens_on == listens_on
    asks = {"password", "password_hash", "user"} & server.keys() or found.tls.ca
    assert bool(found.warning) is not bool(asks)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"host": "0.0.0.0"}, "insecure = true"),
        ({"host": "10.0.0.1"}, "insecure = true"),
        ({"host": "127.evil.example"}, "insecure = true"),
        ({"insecure": True, "password": "p"}, "leave it out"),
        ({"user": [{"username": "u"}]}, "either `password` or"),
        ({"user": [{"username": "u", "password": "p", "rights": ["reed"]}]}, "rights"),
        ({"user": [{"username": "u", "password": "p", "rights": []}]}, "may do nothing"),
        ({"user": [{"username": "u", "password": "p", "client_ids": "a"}]}, "1001-1099"),
        ({"user": [{"username": "u", "password": "p", "client_ids": "9-2"}]}, "without any"),
        ({"user": [{"username": "u", "password": "p"}] * 2}, "twice"),
        (
            {"username": "u", "password": "q", "user": [{"username": "u", "password": "p"}]},
            "twice",
        ),
    ],
)
def test_a_port_that_is_open_by_mistake_is_refused(server: dict[str, object], why: str) -> None:
    """C1: an open port must be said to be one."""
    with pytest.raises(ConfigError, match=why):
        config.load({"instance": [], "server": server})


def test_two_destinations_may_not_share_a_server_id() -> None:
    source = {"address": "127.0.0.1:3306", "server_id": 7}
    two = {"instance": [{"destination": d, "source": source} for d in ("a", "b")]}
    with pytest.raises(ConfigError, match="server_id 7 is given to a and to b"):
        config.load(two)
    two["instance"][1]["source"] = {**source, "server_id": 8}
    config.load(two)
    two["instance"][0]["source"] = two["instance"][1]["source"] = {**source, "server_id": 0}
    config.load(two)


def test_cursors_on_a_server_need_its_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'backend = "mysql" needs `address`'):
        config.load(write(tmp_path, '[meta]\nbackend = "mysql"\n' + MINIMAL))


@pytest.mark.parametrize("database", ["ray_canal", "my-meta$1"])
@pytest.mark.parametrize("black", [r"mysql\.slave_.*", ""])
def test_our_own_tables_are_hidden_and_no_others(database: str, black: str) -> None:
    """C7: each ack would be a change, which is delivered and acked, without end; whatever the
    server of the cursors is called, and whoever replicates it."""
    meta = config.MetaConfig(backend="mysql", address="h:1", database=database)
    given = config.FilterConfig(black_tables=black)
    shown = given.hiding(meta.own_tables)
    assert shown.hiding(meta.own_tables) == shown
    tables = shown.event_filter().tables
    for table in ("canal_cursor", "canal_epoch", "canal_schema", "canal_quarantined"):
        assert not tables.admits(database, table)
        assert tables.admits("shop", table)
    assert tables.admits(database, "orders")
    assert tables.admits("mysql", "slave_x") == (not black)
    for other in (config.MetaConfig(), config.MetaConfig(backend="redis", address="h:1")):
        assert given.hiding(other.own_tables) == given


def test_one_server_of_several_before_the_others() -> None:
    tree = {"destination": "a", "source": {"address": "a:1", "standby": ["b:2", "c:3"]}}
    instance = config.InstanceConfig.model_validate(tree)
    assert instance.source.addresses == ("a:1", "b:2", "c:3")
    at_b = instance.at("b:2")
    assert at_b.source.addresses == ("b:2", "a:1", "c:3")
    assert config.InstanceConfig.model_validate_json(at_b.model_dump_json()) == at_b
    files = config.InstanceConfig.model_validate({"destination": "a", "source": {"files": ["x"]}})
    assert files.at("/somewhere") == files
    with pytest.raises(ValueError, match="twice"):
        config.SourceConfig.model_validate({"address": "a:1", "standby": ["a:1"]})


def test_a_zone_that_there_is_not_is_refused(tmp_path: Path) -> None:
    text = MINIMAL.replace('destination = "', 'time_zone = "Mars/Olympus"\ndestination = "', 1)
    assert text != MINIMAL
    with pytest.raises(ConfigError, match="no such zone"):
        config.load(write(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"destination": "other"}, "no destination 'other'"),
        ({"type": "mysql"}, "mirror.address"),
        ({"transform": "no function"}, "module:name"),
        ({"name": "b"}, "same client_id 5"),
        ({"mirror": {"table": "one"}}, "table"),
        ({"tables": "("}, "tables"),
    ],
)
def test_a_wrong_sink_is_named(change: dict[str, object], said: str) -> None:
    sink = {"name": "a", "destination": "o", "type": "jsonl", "path": "p", "client_id": 5}
    tree = {"instance": [{"destination": "o", "source": {"address": "db"}}], "sink": [sink]}
    assert config.load(tree).sink_named("a").client_id == 5
    tree["sink"] = [sink, {**sink, **change}] if change == {"name": "b"} else [{**sink, **change}]
    with pytest.raises(ConfigError, match=re.escape(said)):
        config.load(tree)
