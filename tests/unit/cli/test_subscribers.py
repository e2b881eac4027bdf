"""Arguments of the commands about subscribers, and what they print."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal.cli import app


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def noted(name: str, answer: Any) -> None:
        def call(*given: Any, **named: Any) -> Any:
            named.pop("namespace")
            found.append((name, *given, *named.items()))
            return answer

        monkeypatch.setattr(canal, name, call, raising=False)

    noted("set_instance_filter", {"tables": r"shop\..*"})
    noted("set_filter", None)
    noted("unsubscribe", None)
    noted("subscribers", {})
    return found


def said(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_a_filter_is_a_subscribers_unless_it_is_said_to_be_the_instances(asked: list[Any]) -> None:
    assert said("filter", "orders", "shop.a", "--client-id", "7")[0] == 0
    assert asked.pop() == ("set_filter", "orders", "shop.a", ("client_id", 7))
    code, text = said("filter", "orders", "shop.a", "--instance", "--set", "dml_delete=true")
    assert (code, text) == (0, "orders: the destination reads shop\\..*\n")
    changes = {"dml_delete": "true", "tables": "shop.a"}
    assert asked == [("set_instance_filter", "orders", *changes.items())]


@pytest.mark.parametrize(
    "wrong", [(), ("--set", "a=b"), ("--instance",), ("--instance", "--set", "dml_delete")]
)
def test_half_a_change_is_refused(wrong: tuple[str, ...], asked: list[Any]) -> None:
    code, text = said("filter", "orders", *wrong)
    assert (code, asked) == (2, [])
    assert "give TABLES; or --instance" in " ".join(text.split())


def test_it_says_so_where_nothing_runs(asked: list[Any]) -> None:
    assert "no destination is running" in said("subscribers")[1]
    assert json.loads(said("subscribers", "--json")[1]) == {}


def test_json_is_one_document(asked: list[Any]) -> None:
    code, text = said("unsubscribe", "orders", "7", "--json")
    assert (code, json.loads(text)) == (0, {"removed": 7})
