"""Our entries against Canal's own, byte for byte: every case of every cases.tsv.

Entries that differ are named one by one in differences.tsv. Fewer or more differences than the
table has fail.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.compare import Case, cases
from tests.golden.defects import CHECKS
from tests.golden.differences import committed, found_now

COMPAT = Path(__file__).parents[2] / "docs" / "reference" / "canal-compat.md"
TABLE = committed()


@pytest.mark.parametrize("case", cases(), ids=str)
def test_entries_are_canals_but_for_the_table(case: Case) -> None:
    found = found_now(case)
    unexplained = [line for line in found if line[3] == "?"]
    assert not unexplained
    assert found == TABLE.get(str(case), [])


def test_the_table_names_cases_and_defects_that_exist() -> None:
    lines = [line for of_case in TABLE.values() for line in of_case]
    assert set(TABLE) <= {str(case) for case in cases()}
    assert {line[3] for line in lines} <= {*CHECKS, "journal-name"}


def test_every_defect_is_described() -> None:
    described = set(re.findall(r"^\| `([a-z-]+)` \|", COMPAT.read_text("utf-8"), re.MULTILINE))
    assert described == {*CHECKS, "journal-name"}
