"""Looks at targets before a start, as far as they need none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import SinkConfig
from ray_canal.sinks.checks import check_sink
from ray_canal.sinks.databases.mysql_rights import Need, missing_rights
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.queues.kafka_place import topic_checks
from ray_canal.sinks.schema_follower import TableName
from ray_canal.sinks.target_checks import SourceTable
from ray_canal.source.setting_checks import CheckResult

USER = "'u'@'%'"
ROWS = "SELECT, INSERT, UPDATE, DELETE"


def need(database: str, *, exists: bool = True, changes: bool = False) -> Need:
    return Need(TableName(database, "t"), exists, changes)


@pytest.mark.parametrize(
    ("grant", "given"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION", True),
        (f"GRANT {ROWS} ON *.* TO 'u'@'%'", True),
        (f"GRANT {ROWS} ON `shop`.* TO `u`@`%`", True),
        (f"GRANT {ROWS} ON `shop`.`t` TO `u`@`%`", True),
        (f"GRANT {ROWS} ON `sh%`.* TO `u`@`%`", True),
        (f"GRANT {ROWS} ON `sho\\_`.* TO `u`@`%`", False),
        (f"GRANT {ROWS} ON `shop`.`other` TO `u`@`%`", False),
        ("GRANT USAGE ON *.* TO `u`@`%`", False),
        ("GRANT `role`@`%` TO `u`@`%`", False),
        ("GRANT PROXY ON ''@'' TO 'u'@'%'", False),
    ],
)
def test_rights_of_a_user_of_mysql(grant: str, given: bool) -> None:
    missing = missing_rights([grant], [need("shop")], USER)
    assert missing == ([] if given else [f"GRANT {ROWS} ON `shop`.* TO {USER}"])


def test_what_lacks_is_what_the_sink_will_do() -> None:
    grants = [f"GRANT {ROWS} ON *.* TO `u`@`%`"]
    new = [need("a"), need("b", exists=False), need("c", changes=True)]
    assert missing_rights(grants, new, USER) == [
        f"GRANT CREATE ON `b`.* TO {USER}",
        f"GRANT CREATE, ALTER, DROP ON `c`.* TO {USER}",
    ]


def test_topics_that_are_not_there_or_too_small() -> None:
    few, absent = topic_checks({"a": 3, "b": 1, "c": 2}, {"a": 2, "b": 5})
    assert not few.ok
    assert not few.advisory
    assert "a (2 of 3)" in few.detail
    assert (absent.ok, absent.advisory, absent.detail) == (False, True, "there is no c")
    assert [each.ok for each in topic_checks({"b": 1}, {"b": 5})] == [True]


class Unreachable:
    """A sink of the user's whose target is away."""

    guarantee = "at_least_once"

    def __init__(self, config: SinkConfig) -> None:
        self.text = config.options["text"]

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        yield CheckResult("tables", True, str(len(tables)))
        raise SinkError(self.text, "retry")


def sink(folder: Path, **more: Any) -> SinkConfig:
    tree = {"name": "s", "destination": "x", "client_id": 7, **more}
    return SinkConfig.model_validate(tree)


def test_a_sink_of_the_users(tmp_path: Path) -> None:
    config = sink(
        tmp_path, type="python", target=f"{__name__}:Unreachable", options={"text": "away"},
        dead_letters=str(tmp_path / "new" / "dead.jsonl"),
    )  # fmt: skip
    tables = [SourceTable("a", "t", ("id",))]
    found = [(each.name, each.ok, each.detail) for each in check_sink(config, tables)]
    assert found[1:] == [("sink s tables", True, "1"), ("sink s target", False, "away")]
    assert found[0][:2] == ("sink s dead_letters", True)
    unknown = sink(tmp_path, type="python", target="nowhere:Sink")
    assert [each.ok for each in check_sink(unknown, ())] == [False]


@pytest.mark.parametrize("kind", ["jsonl", "duckdb"])
def test_a_file_below_what_is_no_folder(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    wrong = sink(tmp_path, type=kind, path=str(tmp_path / "file" / "rows"))
    assert [each.ok for each in check_sink(wrong, ())] == [False]
    right = sink(tmp_path, type=kind, path=str(tmp_path / "new" / "rows"))
    assert [each.ok for each in check_sink(right, ())] == [True]
    assert not (tmp_path / "new").exists()  # nothing was made
