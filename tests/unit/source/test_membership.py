"""Whether a server's cluster goes on without it, of what servers have answered."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ray_canal.errors import PrivilegeMissing
from ray_canal.source.catalog import Catalog
from ray_canal.source.membership import in_galera, why_apart

GALERA = {"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}
GROUP = {"group_replication_group_name": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"}


class Answers:
    """A server with these variables and this status, and these members of its group."""

    def __init__(self, variables: dict[str, str], told: Any = None) -> None:
        self._variables, self._told = variables, told

    def rows(self, sql: str) -> list[dict[str, Any]]:
        if "performance_schema" in sql:
            if self._told is None:
                raise PrivilegeMissing("SELECT command denied")
            return [{"is_own": i == 0, "state": state} for i, state in enumerate(self._told)]
        found = self._variables if "VARIABLES" in sql else self._told
        return [{"Variable_name": name, "Value": value} for name, value in found.items()]


def why(variables: dict[str, str], told: Any = None) -> str:
    return why_apart(cast(Catalog, Answers(variables, told)))


def test_a_server_without_a_cluster() -> None:
    assert why({}) == why({"wsrep_on": "OFF", "wsrep_provider": "none"}) == ""
    assert why({"wsrep_on": "ON", "wsrep_provider": "none"}) == ""
    assert why({"group_replication_group_name": ""}) == ""


def test_a_node_of_a_galera_cluster() -> None:
    assert in_galera(GALERA)
    assert why(GALERA, {"wsrep_ready": "ON", "wsrep_cluster_status": "Primary"}) == ""
    apart = why(GALERA, {"wsrep_ready": "OFF", "wsrep_cluster_status": "non-Primary"})
    assert "wsrep_cluster_status is non-Primary, wsrep_ready is OFF" in apart


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["ONLINE", "ONLINE", "UNREACHABLE"], ""),
        (["RECOVERING", "ONLINE", "ONLINE"], ""),
        ([], ""),  # performance_schema is off
        (None, ""),  # it may not be read
        (["OFFLINE"], "it is OFFLINE"),
        (["ERROR", "ONLINE", "ONLINE"], "it is ERROR"),
        (["ONLINE", "UNREACHABLE", "UNREACHABLE"], "does not reach 2 of the 3"),
        (["ONLINE", "UNREACHABLE"], "does not reach 1 of the 2"),
    ],
)
def test_a_member_of_group_replication(states: list[str] | None, expected: str) -> None:
    found = why(GROUP, states)
    assert expected in found if expected else found == ""
