"""`spark-jar`: the jar of Spark's `format("ray_canal")`, for spark-submit and clusters."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ray_canal.errors import ConfigError


def spark_jar(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Copy it to this file; else its path is printed."),
    ] = None,
    spark_home: Annotated[
        Path | None,
        typer.Option(help="The Spark 3.5 or 4 that it is for; if left out, the pyspark here."),
    ] = None,
) -> None:
    """Make the jar with Spark's format("ray_canal"), for spark-submit --jars."""
    try:
        from ray_canal.spark import jar, provide_java
    except ImportError as error:
        raise ConfigError(str(error)) from None

    provide_java()
    made = jar(spark_home)
    if output is not None:
        shutil.copyfile(made, output)
    typer.echo(output or made)
