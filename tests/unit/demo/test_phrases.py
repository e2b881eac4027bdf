"""The demo shop's words fit together, and its tables."""

from __future__ import annotations

import unicodedata

from ray_canal.demo.make_binlogs import TABLES
from ray_canal.demo.phrases import CITIES, GOODS, PEOPLE, REMARKS

CUSTOMERS, ITEMS, ORDERS, _ = TABLES


def test_each_language_has_people_and_cities() -> None:
    assert PEOPLE.keys() == CITIES.keys()
    for language, (country, order, given, family) in PEOPLE.items():
        assert len(language) == len(country) == 2
        assert order.replace(" ", "") in ("givenfamily", "familygiven")
        assert len(set(given)) == len(given)
        assert all(len(f"{g} {f}") <= 80 for g in given for f in family), "customers.name"


def test_goods_and_remarks_fit_their_columns() -> None:
    for category, title, description in GOODS:
        assert f"'{category}'" in ITEMS
        assert 0 < len(title) <= 110, "items.title, with a number behind it"
        assert len(description.encode()) < 1 << 16
    assert all(len(remark) <= 200 for remark in REMARKS), "orders.note"


def test_they_are_of_many_scripts_and_beyond_the_first_plane() -> None:
    every = "".join([*REMARKS, *(word for good in GOODS for word in good)])
    names = {unicodedata.name(each, "").split()[0] for each in every if each.isalpha()}
    assert {"LATIN", "CJK", "ARABIC", "DEVANAGARI", "CYRILLIC", "HIRAGANA"} <= names
    assert max(every) > "\uffff"
