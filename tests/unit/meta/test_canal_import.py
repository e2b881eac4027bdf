"""Canal's meta.dat: what is read of it, where it goes, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import CanalConfig, load
from ray_canal.errors import ConfigError
from ray_canal.meta.canal_import import import_meta, read_meta_dat
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.open import open_backend
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity

# As Canal 1.1.x writes it.
META_DAT = (
    '{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"example","filter":'
    '"shop\\\\..*"},"cursor":{"identity":{"slaveId":-1,"sourceAddress":{"address":"db1","port":'
    '3306}},"postion":{"gtid":"u:1-7","included":false,"journalName":"mysql-bin.000003",'
    '"position":4358,"serverId":1,"timestamp":1646389870999}}},{"clientIdentity":{"clientId":1002,'
    '"destination":"example","filter":""}}],"destination":"example"}'
)
# As zkCli.sh prints /otter/canal/destinations/example/1001/cursor.
OF_ZOOKEEPER = (
    '{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition","identity":{"slaveId":-1,'
    '"sourceAddress":{"address":"db1","port":3306}},"postion":{"gtid":"","included":false,'
    '"journalName":"mysql-bin.000003","position":4358,"serverId":1,"timestamp":1646389870999}}'
)
READ = [
    SubscriberMeta(
        1001,
        r"shop\..*",
        LogPosition(
            SourceIdentity("db1:3306"), EntryPosition("mysql-bin.000003", 4358)
        ),
    ),
    SubscriberMeta(1002, "", None),
]  # fmt: skip


def deployment(folder: Path) -> CanalConfig:
    instances = [{"destination": n, "source": {"address": "db1"}} for n in ("example", "other")]
    return load({"meta": {"path": str(folder / "meta.db")}, "instance": instances})


def loaded(config: CanalConfig, destination: str) -> dict[int, SubscriberMeta]:
    manager = MetaManager(open_backend(config.meta))
    found = manager.load(destination)
    manager.close()
    return found


@pytest.fixture
def meta_dat(tmp_path: Path) -> Path:
    path = tmp_path / "meta.dat"
    path.write_text(META_DAT)
    return path


def test_what_is_read(meta_dat: Path) -> None:
    name, found = read_meta_dat(meta_dat)
    assert (name, found) == ("example", READ)
    assert found[0].cursor is not None
    position = found[0].cursor.position
    assert (position.gtid, position.timestamp) == ("u:1-7", 1646389870)


def test_it_is_written_where_cursors_are(meta_dat: Path, tmp_path: Path) -> None:
    config = deployment(tmp_path)
    assert import_meta(config, meta_dat, unchecked=True) == ("example", READ)
    assert import_meta(config, meta_dat, "other", unchecked=True) == ("other", READ)
    assert loaded(config, "example") == loaded(config, "other") == {1001: READ[0], 1002: READ[1]}


def test_cursors_that_are_there_are_not_overwritten_unasked(meta_dat: Path, tmp_path: Path) -> None:
    config = deployment(tmp_path)
    import_meta(config, meta_dat, unchecked=True)
    tree: dict[str, Any] = json.loads(META_DAT)
    tree["clientDatas"][0]["cursor"]["postion"]["position"] = 9000
    meta_dat.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=r"1001 at mysql-bin\.000003:4358.*--replace"):
        import_meta(config, meta_dat, unchecked=True)
    assert loaded(config, "example")[1001] == READ[0]
    import_meta(config, meta_dat, replace=True, unchecked=True)
    cursor = loaded(config, "example")[1001].cursor
    assert cursor is not None
    assert cursor.position.position == 9000


@pytest.mark.parametrize(
    "text", ["", META_DAT[:200], "[]", '{"clientDatas": [{}]}', '{"clientDatas": 5}', "null"]
)
def test_what_is_no_meta_dat_is_refused(meta_dat: Path, tmp_path: Path, text: str) -> None:
    meta_dat.write_text(text)
    with pytest.raises(ConfigError, match=r"meta\.dat is not a meta\.dat of Canal"):
        import_meta(deployment(tmp_path), meta_dat)


def test_a_destination_must_be_known_and_its_cursors_kept(meta_dat: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no destination 'nobody'"):
        import_meta(deployment(tmp_path), meta_dat, "nobody")
    memory = deployment(tmp_path).model_copy(
        update={"meta": load({"instance": [], "meta": {"backend": "memory"}}).meta}
    )
    with pytest.raises(ConfigError, match="keeps nothing"):
        import_meta(memory, meta_dat)
    with pytest.raises(ConfigError, match="cannot read"):
        read_meta_dat(tmp_path / "none")


def test_a_server_that_cannot_be_asked_is_no_reason_to_believe(
    meta_dat: Path, tmp_path: Path
) -> None:
    """b7: cursors are tied to their server, or refused with a way out."""
    config = load(
        {
            "meta": {"path": str(tmp_path / "meta.db")},
            "instance": [{"destination": "example", "source": {"address": "127.0.0.1:1"}}],
        }
    )
    for server_uuid in ("", "3e11fa47-71ca-11e1-9e33-c80aa9429562"):
        with pytest.raises(ConfigError, match=r"no server tells.*--unchecked"):
            import_meta(config, meta_dat, server_uuid=server_uuid)
    assert loaded(config, "example") == {}


@pytest.mark.parametrize("after", ["", "\n", "\ncZxid = 0x114811\nctime = Mon Jul 23 2018\n"])
def test_a_cursor_of_zookeeper_is_that_of_canals_client(tmp_path: Path, after: str) -> None:
    path = tmp_path / "cursor.json"
    path.write_text(OF_ZOOKEEPER + after)
    config = deployment(tmp_path)
    found = import_meta(config, path, "other", unchecked=True)
    place = LogPosition(SourceIdentity("db1:3306"), EntryPosition("mysql-bin.000003", 4358))
    assert found == ("other", [SubscriberMeta(1001, "", place)])
    with pytest.raises(ConfigError, match=r"names no destination.*--destination"):
        import_meta(config, path, unchecked=True)


def test_a_filter_or_another_record_of_zookeeper_is_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "running"
    for text in ('{"active":true,"address":"10.57.241.44:53942","clientId":1001}', "shop.item"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"running is not a meta\.dat of Canal"):
            read_meta_dat(path)
