"""Where the form writes, and what."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from ray_canal.config import load
from ray_canal.console import first_source
from ray_canal.console.cluster import Cluster
from ray_canal.console.first_source import FirstSource, SourceFiles, start_first
from ray_canal.errors import ConfigError, SourceError

FIRST = FirstSource(destination="shop", address="db:3306", username="cdc", password="hush")


class Starts:
    """A cluster that starts nothing."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.started: list[Any] = []

    def start(self, config: Any) -> list[str]:
        if self.failure is not None:
            raise self.failure
        self.started.append(config)
        return [each.destination for each in config.instance]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_source, "check_first", lambda first: [])


@pytest.mark.usefixtures("checks")
def test_each_source_has_a_file_of_its_own_in_the_folder(tmp_path: Path) -> None:
    cluster = Starts()
    done = start_first(cast(Cluster, cluster), SourceFiles(folder=str(tmp_path)), FIRST)
    assert done == {"file": str(tmp_path / "shop.toml"), "destinations": ["shop"]}
    assert "hush" not in (tmp_path / "shop.toml").read_text()
    (instance,) = load(tmp_path / "shop.toml").instance
    assert str.__str__(instance.source.password) == f"file:{tmp_path / 'shop.password'}"
    other = FIRST.model_copy(update={"destination": "crm", "password": "env:CRM"})
    start_first(cast(Cluster, cluster), SourceFiles(folder=str(tmp_path)), other)
    assert not (tmp_path / "crm.password").exists()
    with pytest.raises(ConfigError, match=r"shop\.toml exists"):
        start_first(cast(Cluster, cluster), SourceFiles(folder=str(tmp_path)), FIRST)


@pytest.mark.usefixtures("checks")
def test_what_does_not_start_leaves_no_file(tmp_path: Path) -> None:
    cluster = Starts(SourceError("gone"))
    with pytest.raises(SourceError):
        start_first(cast(Cluster, cluster), SourceFiles(str(tmp_path / "canal.toml")), FIRST)
    assert list(tmp_path.iterdir()) == []


def test_a_console_without_a_place_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"console\.sources_folder"):
        SourceFiles().file("shop")
    assert str(SourceFiles(folder="/etc/canal")) == "/etc/canal/NAME.toml"
