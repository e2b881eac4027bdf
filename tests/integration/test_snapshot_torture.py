"""Runs of `python -m tests.snapshot_torture`; its judge notices each rule that is missing."""

from __future__ import annotations

import pytest

from ray_canal.model.snapshot_wish import CONSISTENT
from tests import snapshot_torture
from tests.servers import Server


@pytest.mark.parametrize("server", ["mysql97", "mysql56", "mariadb"])
def test_a_run_on_each_server(server: str, request: pytest.FixtureRequest) -> None:
    """Undisturbed, so that it takes seconds; the command disturbs."""
    running: Server = request.getfixturevalue(server)
    found = snapshot_torture.run(running, seed=3, calm=True)
    assert found["read"] > 300


def test_a_run_of_one_moment(mysql97: Server) -> None:
    found = snapshot_torture.run(mysql97, seed=3, calm=True, mode=CONSISTENT)
    assert found["read"] > 700


@pytest.mark.soak  # `make soak-snapshot`
@pytest.mark.parametrize("rule", snapshot_torture.RULES)
def test_each_rule_left_out_is_noticed(mysql97: Server, rule: str) -> None:
    def runs() -> None:
        for seed in range(40):
            snapshot_torture.run(mysql97, seed, rule, calm=True)

    with pytest.raises((snapshot_torture.Wrong, AssertionError)):
        runs()
