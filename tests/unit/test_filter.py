"""Canal's filter grammar, case by case."""

from __future__ import annotations

import pickle
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_canal.errors import ConfigError
from ray_canal.filter import (
    LIST_CHARACTERS_MAX,
    EventFilter,
    FieldFilter,
    TableFilter,
    split_patterns,
)


@pytest.mark.parametrize(
    ("patterns", "table", "passes"),
    [
        ("", "any.thing", True),
        ("  ", "any.thing", True),
        (",", "any.thing", True),
        (r".*\..*", "any.thing", True),
        (r".*", "any.thing", True),
        (r"shop\..*", "shop.item", True),
        (r"shop\..*", "shop2.item", False),
        (r"shop\..*", "workshop.item", False),
        (r"shop.item", "shopxitem.a", False),  # the whole name must match
        (r"shop\.item", "shop.items", False),
        (r"shop\.item", "shop.item", True),
        (r"SHOP\.Item", "shop.item", True),
        (r"shop\.item", "Shop.ITEM", True),  # names are lower-cased
        (r"^shop\.item$", "shop.item", True),
        (r"a\.b,shop\.item", "shop.item", True),
        (r"a\.b , shop\.item", "shop.item", True),
        (r"a\.b|shop\.item", "shop.item", True),
        (r"a\.b|shop\.item", "a.bc", False),
        (r"shop\.t_\d{1,3}", "shop.t_12", True),  # a comma inside braces parts nothing
        (r"shop\.t_\d{1,3}", "shop.t_1234", False),
        (r"shop\.[a,b]", "shop.,", True),
        (r"shop\.(a,b|c)", "shop.c", True),
        (r"shop\.\(x,a\.b", "a.b", True),  # an escaped bracket opens nothing
        (r"(shop)\.a,(crm)\.a|b", "crm.a", True),  # groups and branches are each pattern's own
        (r"a\.b,(?i)shop\.item", "shop.item", True),
        (r"(?P<n>a)\.b,(?P<n>c)\.d", "c.d", True),
        (r"shop\.(?!secret).*", "shop.secret", False),
        (r"shop\.(?!secret).*", "shop.secretary", False),
        (r"shop\.(?!secret$).*", "shop.secretary", True),
        (r"shop\.(?!secret).*,shop\.secret_1", "shop.secret_1", True),
        (r"商店\..*", "商店.订单", True),
        (r"商店\.\w+", "商店.订单", True),  # letters and digits are Unicode's, as in Canal
        (r"SHOP\.T_1,crm\.a\-b,crm\.c", "shop.t_1", True),
        (r"shop\.t_1,crm\.a\-b,crm\.c", "crm.a-b", True),
        (r"shop\.t_1,crm\.a\-b,crm\.c", "shop.t_2", False),
    ],
)
def test_which_tables_pass(patterns: str, table: str, passes: bool) -> None:
    schema, _, name = table.partition(".")
    assert TableFilter(patterns).admits(schema, name) is passes


def test_black_wins_and_empty_black_matches_none() -> None:
    both = TableFilter(r"shop\..*", r"shop\.log_.*,mysql\.slave_.*")
    assert both.admits("shop", "item")
    assert not both.admits("shop", "log_1")
    assert not both.admits("SHOP", "LOG_1")
    assert not TableFilter("", r"shop\..*").admits("shop", "item")
    assert TableFilter("", "").admits("shop", "item")


def test_within_must_admit_too() -> None:
    narrowed = TableFilter(r"shop\..*", "", within=r".*\.item")
    assert narrowed.admits("shop", "item")
    assert not narrowed.admits("shop", "order")
    assert not narrowed.admits("crm", "item")


@pytest.mark.parametrize(
    "pattern", [r"shop\.(", "a{2,1}", "*", r"[z-a]", "(?P<x>a", "a{9999999999}"]
)
@pytest.mark.parametrize("place", ["tables", "black_tables", "within"])
def test_a_bad_pattern_is_named(pattern: str, place: str) -> None:
    with pytest.raises(ConfigError, match="is not a regular expression that can be used") as caught:
        TableFilter(**{place: rf"good\..*,{pattern}"})
    assert repr(pattern) in str(caught.value)


@pytest.mark.parametrize("length", [26, 60, 200])
@pytest.mark.timed
def test_no_pattern_takes_long(length: int) -> None:
    """C3: a pattern whose backtracking doubles with each letter of a name takes no time at all."""
    began = time.process_time()
    assert not TableFilter(r"([a-z_0-9]+)+#").admits("a" * length, "t")
    assert not TableFilter(r"shop\..*,(.*a){20}#").admits("a" * length, "t")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "pattern", [r"(a)\.\1", r"a(?=b)\..*", r".*(?<!a)\.b", r"(?>a)\.b", "a++.b"]
)
def test_what_would_need_backtracking_is_refused(pattern: str) -> None:
    """C3: nobody finds out later that a pattern means something else here."""
    with pytest.raises(ConfigError, match="must take linear time") as caught:
        TableFilter(pattern)
    assert repr(pattern) in str(caught.value)


@pytest.mark.timed
def test_a_list_is_read_in_a_bounded_time() -> None:
    """C3: nor does reading a hostile list stop anything."""
    began = time.process_time()
    with pytest.raises(ConfigError, match="too large at its pattern"):
        TableFilter(",".join(f"a{number}.{{0,1000}}" for number in range(10_000)))
    with pytest.raises(ConfigError, match="pattern too large"):
        TableFilter(".{0,1000}" * 1000)
    with pytest.raises(ConfigError, match="is too long"):
        TableFilter("a," * LIST_CHARACTERS_MAX)
    assert time.process_time() - began < 10


def test_thousands_of_names_are_one_lookup() -> None:
    names = TableFilter(",".join(rf"shop\.t_{number}" for number in range(10_000)))
    assert names.admits("shop", "T_9999")
    assert not names.admits("shop", "t_10000")


def test_names_that_no_encoding_has() -> None:
    assert not TableFilter(r"shop\.a").admits("shop", "a\udc80")
    assert TableFilter(r"shop\..*").admits("shop", "a\udc80")


def test_a_filter_travels_between_processes() -> None:
    found = pickle.loads(pickle.dumps(TableFilter(r"shop\.(?!b).*,a\.b", r"a\.[cd]")))
    assert [found.admits(*name) for name in (("shop", "a"), ("shop", "b"), ("a", "b"))] == [
        True, False, True,
    ]  # fmt: skip


# Each is a pattern by itself; commas in brackets part nothing, letters stand for either case.
_PATTERNS = st.sampled_from(
    [
        r"a\.b", r"A\.B", r"a\.bb", r"a\..*", r".*\.b", r"a\.b{1,2}", r"a\.[b,c]", r"a\.(b,|c|bb)",
        r"(a|b)\.\w{1,2}", r".*", r"a.b", r"\w+\.c", r"b\.b|a\.c", r"a\.b?", r"^a\.c$", r"[^a]\..*",
    ]
)  # fmt: skip
_LISTS = st.lists(_PATTERNS, max_size=4)
_NAMES = st.text("abcABC,", min_size=1, max_size=3)
_JOINTS = st.sampled_from([",", " ,", ", ", ",,"])


def _passes(patterns: list[str], name: str) -> bool:
    """A list read as section 1.3 of the reference has it: in any case, the whole name."""
    return any(re.fullmatch(pattern, name.lower(), re.IGNORECASE) for pattern in patterns)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(_LISTS, _LISTS, _LISTS, _JOINTS, _NAMES, _NAMES)
def test_lists_are_read_as_the_rules_say(
    white: list[str], black: list[str], within: list[str], joint: str, schema: str, table: str
) -> None:
    name = f"{schema}.{table}"
    wanted = (
        (not white or _passes(white, name))
        and (not within or _passes(within, name))
        and not _passes(black, name)
    )
    texts = [joint.join(patterns) for patterns in (white, black, within)]
    assert [split_patterns(text) for text in texts] == [white, black, within]
    assert TableFilter(*texts).admits(schema, table) is wanted


def test_rows_that_an_instance_wants() -> None:
    wanted = EventFilter(TableFilter(r"shop\..*", r".*\.log"))
    assert wanted.wants_rows("Shop", "item")
    assert not wanted.wants_rows("shop", "log")
    assert not wanted.wants_rows("crm", "item")
    assert not EventFilter(TableFilter(), rows=True).wants_rows("shop", "item")
    assert not wanted.by_kind
    assert not EventFilter(TableFilter(), rows=True, table_error=True).by_kind
    assert EventFilter(TableFilter(), dml_update=True).by_kind


def test_split_keeps_commas_in_brackets_and_escapes() -> None:
    assert split_patterns(r"a{1,2},b[,],(c,d),e\,f , ,g") == [
        "a{1,2}", "b[,]", "(c,d)", r"e\,f", "g",
    ]  # fmt: skip
    assert split_patterns("a],b") == ["a]", "b"]


def test_equal_texts_are_equal_filters() -> None:
    assert TableFilter("a", "b") == TableFilter("a", "b")
    assert TableFilter("a", "b") != TableFilter("a", "c")
    assert str(TableFilter("a", "b")) == "a"
    assert len({TableFilter("a"), TableFilter("a")}) == 1


@pytest.mark.parametrize(
    ("white", "black", "shown"),
    [
        ("", "", "a b C"),
        ("s.t:a/c", "", "a C"),
        ("S.T:A", "", "a"),
        ("s.t: a / b , s.u:x", "", "a b"),
        ("s.t:a,s.t:b", "", "a b"),
        ("s.t:gone", "", ""),
        ("s.u:a", "", "a b C"),
        ("", "s.t:a/B", "C"),
        ("s.t:a", "s.t:a", "a"),  # white wins
        ("s.u:a", "s.t:c", "a b"),
    ],
)
def test_columns_by_name(white: str, black: str, shown: str) -> None:
    fields = FieldFilter(white, black)
    assert bool(fields) == bool(white or black)
    assert " ".join(c for c in ("a", "b", "C") if fields.admits("s", "t", c)) == shown


@pytest.mark.parametrize("text", ["s.t", "t:a", "s.t:", "s.t:a,:b"])
def test_a_field_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected schema"):
        FieldFilter(text)
