"""The jar: compiled once, whole, and told apart by its source."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from ray_canal.errors import CanalError
from ray_canal.spark import provide_java
from ray_canal.spark import source_jar as module

HOME = Path(module.pyspark.__file__).parent


def test_the_jar_has_the_source_and_its_service(monkeypatch, tmp_path: Path) -> None:
    provide_java()
    monkeypatch.setenv("RAY_CANAL_CACHE_DIR", str(tmp_path))
    made = module.jar()
    assert made.parent == tmp_path / "spark"
    with zipfile.ZipFile(made) as packed:
        assert {"raycanal/Source.class", "raycanal/Vector.class"} <= set(packed.namelist())
        service = next(name for name in packed.namelist() if name.startswith("META-INF"))
        assert packed.read(service).decode().strip() == module.CLASS
        assert all(int.from_bytes(packed.read(name)[4:8], "big") <= 55
                   for name in packed.namelist() if name.endswith(".class"))  # Java 11  # fmt: skip
    monkeypatch.setattr(module, "_compiled", lambda _: pytest.fail("it is in the cache"))
    assert module.jar() == made
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_another_source_is_another_jar(monkeypatch, tmp_path: Path) -> None:
    shutil.copytree(module.SOURCES, tmp_path / "java")
    before = module._place(HOME)
    monkeypatch.setattr(module, "SOURCES", tmp_path / "java")
    assert module._place(HOME).name == before.name
    (tmp_path / "java" / "Source.java").write_text("package raycanal;")
    assert module._place(HOME).name != before.name


def test_what_cannot_be_compiled_is_told(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_CANAL_CACHE_DIR", str(tmp_path))

    def broken(home: Path) -> dict[str, bytes]:
        raise OSError("no java")

    monkeypatch.setattr(module, "_compiled", broken)
    with pytest.raises(CanalError, match=r"janino of spark-core_.*: no java"):
        module.jar()
    with pytest.raises(CanalError, match="it is no home of a Spark"):
        module.jar(tmp_path)
