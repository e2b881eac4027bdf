"""The fetcher's process: a destination's fetcher, made of what Ray may keep."""

from __future__ import annotations

import pytest

from ray_canal.actors.upstream import fetcher as module
from ray_canal.actors.upstream.fetcher import FetcherActor
from ray_canal.config import InstanceConfig, kept_secrets
from ray_canal.errors import ConfigError
from ray_canal.model.start import ALL_CURSORS
from tests.local_destination import binlog_files, instance


def test_it_reads_what_its_configuration_says() -> None:
    made = FetcherActor(instance(binlog_files()[1:2]).model_dump_json(), False)
    made.open((), "", (), ALL_CURSORS)
    raw = made.next_raw()[1]
    made.close()
    assert raw is not None
    assert raw.head.journal_name == binlog_files()[1].name


def test_it_has_the_secrets_that_it_is_told() -> None:
    tree = {"destination": "x", "source": {"address": "db:3306", "password": "s3cret"}}
    given, told = kept_secrets.handed_over(InstanceConfig.model_validate(tree))
    [reference] = told
    made = FetcherActor(given.model_dump_json(), False)
    with pytest.raises(ConfigError, match="not kept on this machine"):
        kept_secrets.read(reference)
    made.remember(told)
    assert kept_secrets.read(reference) == "s3cret"


def test_a_look_at_its_health_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up: list[bool] = []
    monkeypatch.setattr(module, "give_up_unused", lambda: given_up.append(True))
    made = FetcherActor(instance().model_dump_json(), True)
    made.alive()
    assert given_up == [True]
