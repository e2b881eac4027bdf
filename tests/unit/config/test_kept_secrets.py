"""Passwords in clear text: shown nowhere, kept in files that nobody else may read."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import (
    CanalConfig,
    InstanceConfig,
    SinkConfig,
    kept_secrets,
    load,
    secret,
)
from ray_canal.config.kept_secrets import clear_secrets
from ray_canal.errors import ConfigError
from ray_canal.server.access import Access, hashed

SECRET = "S3cret-of-the-test"
REFERENCES = ("env:NAME", "file:/run/secrets/canal")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def given(password: str = SECRET) -> CanalConfig:
    return load(
        {
            "instance": [
                {"destination": "x", "source": {"address": "db", "password": password}},
                {"destination": "y", "source": {"address": "db2", "password": password}},
            ],
            "meta": {"backend": "redis", "address": "r", "password": password},
            "server": {
                "password": password,
                "user": [{"username": "ann", "password": password}],
            },
        }
    )


def test_a_configuration_shows_no_secret() -> None:
    """C7: in a traceback, a log, a notebook; a reference to one is shown."""
    config = given()
    for shown in (repr(config), str(config), f"{config.meta.password:>20}", f"{config}"):
        assert SECRET not in shown
        assert "*****" in shown
    assert secret(config.meta.password) == SECRET
    for reference in REFERENCES:
        assert reference in repr(given(reference))
    again = CanalConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert SECRET not in repr(again)
    assert SECRET not in repr(pickle.loads(pickle.dumps(config)))
    with pytest.raises(ConfigError) as caught:
        load({"instance": [{"destination": "x", "source": {"adress": "", "password": SECRET}}]})
    assert SECRET not in str(caught.value)


def test_what_a_cluster_keeps_has_references_only() -> None:
    """C7: and they are read where they were written, until they are dropped."""
    config = given()
    kept = kept_secrets.with_references(config)
    assert SECRET not in kept.model_dump_json()
    found = kept_secrets.references(kept)
    assert len(set(found)) == len(found) == 5
    read_again = CanalConfig.model_validate_json(kept.model_dump_json())
    assert {secret(reference) for reference in kept_secrets.references(read_again)} == {SECRET}
    assert kept_secrets.revealed(read_again) == config
    assert kept_secrets.with_references(kept) == kept
    kept_secrets.drop(found)
    for reference in found:
        with pytest.raises(ConfigError, match=r"not kept on this machine.*start the dest"):
            secret(reference)
    assert kept_secrets.revealed(kept) == kept
    for reference in REFERENCES:
        assert kept_secrets.with_references(given(reference)) == given(reference)


def test_only_the_owner_may_read_them(home: Path) -> None:
    """C7: whatever the umask is, and whoever was there before."""
    before = os.umask(0)
    try:
        kept_secrets.keep(SECRET)
    finally:
        os.umask(before)
    (folder,) = home.iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    folder.chmod(0o777)
    reference = kept_secrets.keep(SECRET)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert secret(reference) == SECRET


def test_a_folder_that_is_not_ours_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7: a link that somebody has laid leads nowhere."""
    (home / "elsewhere").mkdir()
    name = f".ray_canal-secrets-{os.geteuid()}"
    (home / name).symlink_to(home / "elsewhere")
    (home / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(home / "tmp"))
    reference = kept_secrets.keep(SECRET)
    assert secret(reference) == SECRET
    assert not list((home / "elsewhere").iterdir())
    assert list((home / "tmp" / name).iterdir())
    for odd in ("kept:../../etc/passwd", "kept:", "kept:abc"):
        with pytest.raises(ConfigError, match="no reference to a secret"):
            secret(odd)


def test_another_process_is_told_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """C7: what a stage is made with has no secret, what it is told afterwards has."""
    monkeypatch.setattr(kept_secrets, "_told", {})
    config = kept_secrets.with_references(given().instance[0])
    told_config, told = kept_secrets.handed_over(config)
    assert told_config == config
    assert list(told.values()) == [SECRET]
    kept_secrets.drop(told)
    with pytest.raises(ConfigError):
        kept_secrets.handed_over(config)
    kept_secrets.remember(told)
    assert secret(config.source.password) == SECRET
    clear = InstanceConfig.model_validate({**given().instance[0].model_dump()})
    told_config, told = kept_secrets.handed_over(clear)
    assert SECRET not in told_config.model_dump_json()
    assert list(told.values()) == [SECRET]


def test_what_was_forgotten_goes_after_a_week(home: Path) -> None:
    old, used, young = (kept_secrets.keep(SECRET) for _ in range(3))
    (folder,) = home.iterdir()
    (folder / "somebody's").write_text("own")
    for path in folder.iterdir():
        then = path.stat().st_mtime - kept_secrets.FORGOTTEN_S - 1
        if path.name != young.partition(":")[2]:
            os.utime(path, (then, then))
    kept_secrets.touch([used])
    kept_secrets.sweep()
    assert [secret(each) for each in (used, young)] == [SECRET, SECRET]
    with pytest.raises(ConfigError):
        secret(old)
    assert (folder / "somebody's").exists()


def test_a_tcp_server_is_made_with_hashes() -> None:
    """C7: all that it needs to know of a password."""
    config = given().server
    assert config is not None
    made = hashed(config)
    assert SECRET not in made.model_dump_json()
    assert vars(Access(made)) == vars(Access(config))
    assert hashed(made) == made


def test_a_default_is_no_secret() -> None:
    rabbitmq = {"address": "127.0.0.1:5672"}
    given: dict[str, Any] = {"name": "copy", "destination": "shop", "client_id": 7}
    given.update(type="rabbitmq", rabbitmq=rabbitmq)
    assert clear_secrets(SinkConfig.model_validate(given)) == []
    rabbitmq["password"] = "carrots"
    assert clear_secrets(SinkConfig.model_validate(given)) == ["rabbitmq.password"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adls.account-key", "bm9uc2Vuc2U="),
        ("adls.connection-string", "AccountName=a;AccountKey=b"),
        ("s3.secret-access-key", "x"),
        ("header.Authorization", "Basic eA=="),
        ("uri", "postgresql+psycopg2://canal:S3cret@db/catalog"),
        ("AZURE_STORAGE_SAS_KEY", "x"),
    ],
)
def test_secrets_among_a_lakes_options_are_seen(name: str, value: str) -> None:
    lake = {"options": {"type": "sql", "warehouse": "file:///w", name: value}}
    given = {"name": "s", "destination": "d", "type": "iceberg", "client_id": 1, "lake": lake}
    assert clear_secrets(SinkConfig.model_validate(given)) == [f"lake.options.{name}"]
    lake["options"][name] = "env:A_SECRET"
    assert clear_secrets(SinkConfig.model_validate(given)) == []
    lake["options"].update(uri="http://catalog:8181/a@b", **{"s3.access-key-id": "env:ID"})
    assert clear_secrets(SinkConfig.model_validate(given)) == []


@pytest.mark.parametrize("name", ["ssl.key.pem", "sasl.jaas.config", "sasl.password"])
def test_secrets_among_kafkas_properties_are_seen(name: str) -> None:
    properties = {"bootstrap.servers": "k:9092", "ssl.ca.pem": "-----BEGIN", name: "x"}
    kafka = {"properties": properties}
    given = {"name": "s", "destination": "d", "type": "kafka", "client_id": 1, "kafka": kafka}
    assert clear_secrets(SinkConfig.model_validate(given)) == [f"kafka.properties.{name}"]
