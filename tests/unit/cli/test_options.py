"""Options that several commands have."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from ray_canal.cli.options import NAMESPACE, LookingOn, Namespace, OptionalConfig, Tables
from ray_canal.config.deployment import RayConfig

app = typer.Typer()


@app.command()
def show(
    namespace: Namespace = NAMESPACE,
    client: LookingOn = None,
    tables: Tables = "all",
    config: OptionalConfig = None,
) -> None:
    typer.echo(f"{namespace} {client} {tables} {config}")


def shown(*arguments: str, **environment: str) -> str:
    return CliRunner().invoke(app, arguments, env=environment).output.strip()


def test_the_namespace_is_that_of_a_deployment_that_names_none() -> None:
    assert RayConfig().namespace == NAMESPACE


def test_the_namespace_may_come_from_the_environment() -> None:
    assert shown(RAY_CANAL_NAMESPACE="theirs") == "theirs None all None"
    assert shown("--namespace", "mine", RAY_CANAL_NAMESPACE="theirs").startswith("mine ")


@pytest.mark.parametrize("wrong", [["--client-id", "x"], ["--client"], ["--tables", "t"]])
def test_each_has_one_name_and_one_type(wrong: list[str]) -> None:
    assert shown("--client-id", "7", "--filter", "t", "--config", "c") == f"{NAMESPACE} 7 t c"
    assert CliRunner().invoke(app, wrong).exit_code == 2
