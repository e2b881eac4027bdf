"""`ray-canal check` for programs: what is wrong, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from ray_canal.cli import app
from ray_canal.demo import binlog_files


def deployment(folder: Path, *files: Path) -> Path:
    path = folder / "canal.toml"
    names = ", ".join(f'"{file}"' for file in files)
    path.write_text(
        f'[meta]\npath = "{folder}/meta.db"\n[[instance]]\ndestination = "orders"\n'
        f"[instance.source]\nfiles = [{names}]\n"
    )
    return path


def test_all_is_well(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["check", str(deployment(tmp_path, *binlog_files())), "--json"])
    assert told.exit_code == 0
    (results,) = json.loads(told.stdout).values()
    assert results
    assert all(each["ok"] for each in results)


def test_what_is_wrong_is_told_with_what_to_do(tmp_path: Path) -> None:
    broken = tmp_path / "mysql-bin.000001"
    broken.write_bytes(b"no binlog")
    told = CliRunner().invoke(app, ["check", str(deployment(tmp_path, broken)), "--json"])
    assert told.exit_code == 1
    (wrong,) = (each for each in json.loads(told.stdout)["orders"] if not each["ok"])
    assert str(broken) in wrong["detail"]
    assert not wrong["advisory"]


def test_the_cursors_and_a_sink_s_target_are_looked_at(tmp_path: Path) -> None:
    path = deployment(tmp_path, *binlog_files())
    (tmp_path / "file").touch()
    path.write_text(
        path.read_text().replace(f"{tmp_path}/meta.db", f"{tmp_path}/file/meta.db")
        + '[[sink]]\nname = "out"\ndestination = "orders"\nclient_id = 7\ntype = "jsonl"\n'
        f'path = "{tmp_path}/file/out.jsonl"\n'
    )
    told = CliRunner().invoke(app, ["check", str(path), "--json"])
    assert told.exit_code == 1
    wrong = {each["name"]: each for each in json.loads(told.stdout)["orders"] if not each["ok"]}
    assert set(wrong) == {"cursors", "sink out path"}
    assert not any(each["advisory"] for each in wrong.values())
