"""Canal's properties files: Java's syntax, Spring's placeholders, where instances are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.errors import ConfigError
from ray_canal.migration.properties import (
    Properties,
    destination_of,
    expanded,
    instance_files,
    read,
)


def test_javas_syntax(tmp_path: Path) -> None:
    path = tmp_path / "canal.properties"
    path.write_bytes(
        rb"""# a comment
! another
canal.port = 11111
canal.instance.filter.regex=.*\\..*
spread = a,\
    b
colon : yes
umlaut=\u00e4
latin="""
        + "ü".encode("latin-1")
        + b"\nempty=\nmemunit = 1024 \ntwice=1\ntwice=2\n"
    )
    assert read(path) == {
        "canal.port": "11111", "canal.instance.filter.regex": r".*\..*", "spread": "a,b",
        "colon": "yes", "umlaut": "ä", "latin": "ü", "empty": "", "memunit": "1024", "twice": "2",
    }  # fmt: skip


def test_what_is_no_properties_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read(tmp_path / "gone.properties")
    (tmp_path / "bad.properties").write_text("a=\\u12")
    with pytest.raises(ConfigError, match="is not a properties file"):
        read(tmp_path / "bad.properties")


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("plain", "plain"),
        ("${a}", "one"),
        ("${a:two}", "one"),
        ("${gone:two}", "two"),
        ("${gone:}", ""),
        ("${b}", "one/x"),
        ("${gone:${a}}", "one"),
        ("${gone:${gone2:three}}", "three"),
        ("x${a}y${OUTSIDE}z", "xoneyfromoutsidez"),
        ("$a {a}", "$a {a}"),
    ],
)
def test_placeholders(value: str, resolved: str) -> None:
    values = {"key": value, "a": "one", "b": "${a}/x"}
    assert Properties(values, {"OUTSIDE": "fromoutside", "a": "not asked"}).get("key") == resolved


def test_placeholders_that_lead_nowhere() -> None:
    with pytest.raises(ConfigError, match=r"key names \$\{gone\}.*--set gone=VALUE"):
        Properties({"key": "${gone}"}, {}).get("key")
    with pytest.raises(ConfigError, match="leads back to itself"):
        Properties({"a": "${b}", "b": "${a}"}, {}).get("a")
    assert Properties({}, {}).get("key", "default") == "default"


def test_which_variable_a_value_is() -> None:
    values = {
        "one": "${DB_PASSWORD}",
        "two": "${DB_PASSWORD:x}",
        "three": "a${B}",
        "four": "${one}",
    }
    properties = Properties(values, {})
    found = [properties.variable(key) for key in (*values, "gone")]
    assert found == ["DB_PASSWORD", "DB_PASSWORD", None, None, None]


def test_destinations(tmp_path: Path) -> None:
    assert destination_of(Path("conf/orders/instance.properties")) == "orders"
    assert destination_of(Path("conf/orders.properties")) == "orders"
    assert expanded("p{1-3}") == ["p1", "p2", "p3"]
    assert expanded("a{9-10}b") == ["a9b", "a10b"]
    with pytest.raises(ConfigError, match=r"expected a form like p\{1-5\}"):
        expanded("p1-3")
    for name in ("b", "a", "p1", "p2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "instance.properties").touch()
    canal = tmp_path / "canal.properties"

    def found(**values: str) -> list[str]:
        keys = {f"canal.{key.replace('_', '.')}": value for key, value in values.items()}
        return list(instance_files(canal, Properties(keys, {})))

    assert found(destinations="b , a") == ["b", "a", "p1", "p2"]
    assert found(destinations="b", auto_scan="false") == ["b"]
    assert found(destinations="a", destinations_expr="p{1-2}", auto_scan="false") == [
        "a", "p1", "p2",
    ]  # fmt: skip
    assert found() == ["a", "b", "p1", "p2"]
    with pytest.raises(ConfigError, match="names gone, but there is no"):
        found(destinations="a,gone")
