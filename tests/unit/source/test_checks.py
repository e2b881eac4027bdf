"""What a user was granted, by SHOW GRANTS of each server."""

from __future__ import annotations

import pytest

from ray_canal.source.checks import granted

REPLICATION = {"REPLICATION SLAVE", "REPLICATION CLIENT"}


@pytest.mark.parametrize(
    ("grants", "everywhere", "elsewhere"),
    [
        (["GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `a`@`%`"],
         {"SELECT", *REPLICATION}, set()),
        (["GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `a`@`%`",
          "GRANT SELECT ON `shop`.* TO `a`@`%`"], REPLICATION, {"SELECT"}),
        (["GRANT USAGE ON *.* TO `a`", "GRANT SELECT (`id`, `on`), INSERT ON `s`.`t` TO `a`"],
         {"USAGE"}, {"SELECT", "INSERT"}),
        (["GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION", "GRANT PROXY ON ``@`%`"],
         {"ALL PRIVILEGES"}, {"PROXY"}),
        (["GRANT REPLICATION SLAVE ADMIN, BINLOG MONITOR ON *.* TO `a`@`%`"],
         {"REPLICATION SLAVE ADMIN", "BINLOG MONITOR"}, set()),
        (["GRANT `reader`@`%` TO `a`@`%`", "SET DEFAULT ROLE `reader` FOR `a`@`%`"], set(), set()),
    ],
)  # fmt: skip
def test_granted(grants: list[str], everywhere: set[str], elsewhere: set[str]) -> None:
    assert granted(grants) == (everywhere, elsewhere)
