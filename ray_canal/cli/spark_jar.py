"""`spark-jar`: the jar of Spark's `format("ray_canal")`, for spark-submit and clusters."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer


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
    from ray_canal.spark import jar, provide_java

    provide_java()
    made = jar(spark_home)
    if output is not None:
        shutil.copyfile(made, output)
    typer.echo(output or made)
