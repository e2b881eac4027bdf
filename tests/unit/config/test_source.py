"""[instance.source]: the servers of a source, the preferred one first."""

from __future__ import annotations

import pytest

from ray_canal import config


def test_one_server_of_several_before_the_others() -> None:
    tree = {"destination": "a", "source": {"address": "a:1", "standby": ["b:2", "c:3"]}}
    instance = config.InstanceConfig.model_validate(tree)
    assert instance.source.addresses == ("a:1", "b:2", "c:3")
    at_b = instance.at("b:2")
    assert at_b.source.addresses == ("b:2", "a:1", "c:3")
    assert config.InstanceConfig.model_validate_json(at_b.model_dump_json()) == at_b
    files = config.InstanceConfig.model_validate({"destination": "a", "source": {"files": ["x"]}})
    assert files.at("/somewhere") == files
    with pytest.raises(ValueError, match="twice"):
        config.SourceConfig.model_validate({"address": "a:1", "standby": ["a:1"]})


def test_files_do_not_start_at_a_gtid_set() -> None:
    """They were read from their beginning, and nobody said so."""
    tree = {"files": ["mysql-bin.000001"], "start": "gtid", "gtid_set": "a:1-5"}
    with pytest.raises(ValueError, match=r'start = "gtid"` needs a server'):
        config.SourceConfig.model_validate(tree)


@pytest.mark.parametrize("address", ["db:abc", "db:0", "mysql://db:3306", "/tmp/mysql.sock", "d b"])
def test_an_address_that_leads_nowhere_is_refused_when_it_is_read(address: str) -> None:
    for tree in ({"address": address}, {"address": "db:1", "standby": [address]}):
        with pytest.raises(ValueError, match=r"expected host:port, or \[IPv6\]:port"):
            config.SourceConfig.model_validate(tree)
