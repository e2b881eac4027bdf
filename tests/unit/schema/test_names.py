"""Names as servers fold them. That it is what servers do: tests/integration/test_letter_case.py."""

from __future__ import annotations

import pytest

from ray_canal.schema.names import Names, lowered


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("T_User", "t_user"), ("ÄÖÜß", "äöüß"), ("İX", "ix"), ("ΣΟΦΟΣ", "σοφοσ"), ("ЁЖ", "ёж"),
        ("ＡＢ", "ａｂ"), ("K", "k"), ("Å", "å"), ("Ⅻ", "ⅻ"), ("表", "表"), ("a$1", "a$1"),
        ("Ⱥ", "Ⱥ"), ("Ꭰ", "Ꭰ"), ("Ⴀ", "Ⴀ"), ("ẞ", "ẞ"), ("Ԁ", "Ԁ"), ("Ꙁ", "Ꙁ"),
    ],
)  # fmt: skip
def test_lower_case_is_that_of_identifiers(name: str, folded: str) -> None:
    """A7: as utf8mb3_general_ci has it, not as Python does (the last six have lower-case letters
    that are younger than it)."""
    assert lowered(name) == folded
    assert len(lowered(name)) == len(name)


@pytest.mark.parametrize(
    ("setting", "pair"), [(None, ("Db", "T")), (0, ("Db", "T")), (1, ("db", "t")), (2, ("db", "t"))]
)
def test_who_folds(setting: int | None, pair: tuple[str, str]) -> None:
    names = Names(setting)
    assert names.pair(("Db", "T")) == pair
    assert (names.one("Db"), names.one("T")) == pair
    assert names == Names(setting) != Names(7)
