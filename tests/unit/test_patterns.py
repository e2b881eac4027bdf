"""Patterns over names: RE2's time, Perl's meaning."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_canal.errors import ConfigError
from ray_canal.patterns import compiled, span


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        (r"\w+", "aä1_订", True),
        (r"\w+", "a-b", False),
        (r"[\w-]+", "ä-b", True),
        (r"[^\w]", "-", True),
        (r"[^\w]", "ä", False),
        (r"\W", "ä", False),
        (r"\d\D", "٣x", True),
        (r"[\d]", "٣", True),
        (r"a\sb", "a\u00a0b", True),
        (r"[\s]\S", "\u3000x", True),
        (r"\\w", r"\w", True),  # an escaped backslash
        (r"\Qa.b\E\w", "a.bc", True),
        (r"\Q\w\Ex", r"\wx", True),
        (r"\Q\w", r"\w", True),
        (r"[[:alpha:]\]]+", "a]", True),
        (r"[]\w]+", "]ä", True),
        (r"[^]]+", "a", True),
        (r"\Aab\Z", "ab", True),
        (r"(?i)AB", "ab", True),
        ("ABÄ", "abä", True),
        (r"a{,3}", "a{,3}", True),  # as in Perl; Python's re counts from 0 here
        (r"(?!x|y).*", "xa", False),
        (r"(?!x|y).*", "ax", True),
        (r"^(?!x).*$", "xa", False),
        (r"^(?!x).*$", "a", True),
        (r"a(?!b)(?!c)\w", "ab", False),
        (r"a(?!b)(?!c)\w", "ac", False),
        (r"a(?!b)(?!c)\w", "ad", True),
        (r"a(?!b).|ab", "ab", True),  # the other branch
        ("a|ab", "ab", True),  # ORO tries the first alone
        ("ab|a", "a", True),
        ("s(a|ab)", "sab", True),
        (r"a(?![|)]).|x", "a)", False),
        (r"a(?!(b|c)d).*", "abd", False),
        (r"a(?!(b|c)d).*", "abe", True),
        (r"a(?!.*z$).*", "abz", False),
        (r"a(?!.*z$).*", "azb", True),
        (r"a\((?!b).", "a(c", True),
        (r"a(?!b)", "a", True),
    ],
)
def test_what_matches(pattern: str, name: str, matches: bool) -> None:
    assert compiled(pattern).matches(name) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(a)\\1", "(?=a)b", "(?<=a)b", "(?<!a)b", "a*+", "(?>a)", "[\\W]", "(a(?!b))", ".(?!b)",
        "(?!a", "(?!a)*b", "a(?!b){2}", "(?!(?!a))", "a(?!\\1)b", "(", "[a", "*", "a\\", "a\ud800",
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is not a regular expression that can be used") as caught:
        compiled(pattern)
    assert repr(pattern) in str(caught.value)


_ATOMS = st.sampled_from(["a", "b", ".", "\\.", "[ab]", "[^a]", "\\w", "\\d", "(a|b)", "b?", "a*"])
_PARTS = st.lists(_ATOMS, max_size=4).map("".join)
_LITERALS = st.text("ab1", max_size=2)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(_LITERALS, st.lists(_PARTS, max_size=2), _PARTS, _PARTS, st.text("ab1.", max_size=5))
def test_it_means_what_backtracking_means(
    before: str, excluded: list[str], rest: str, other: str, name: str
) -> None:
    """A look-ahead behind literal text, and all that needs none."""
    ahead = "".join(f"(?!{each})" for each in excluded)
    rest = f"(?:{rest})"  # one that cannot begin with a quantifier
    pattern = f"{before}{ahead}{rest}|{other}"
    assert compiled(pattern).matches(name) is (re.fullmatch(pattern, name) is not None)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(_LITERALS, _PARTS, _PARTS, st.text("ab1.", max_size=5), st.booleans())
def test_a_span_holds_every_name_that_matches(
    before: str, rest: str, other: str, name: str, upper: bool
) -> None:
    pattern = f"{before}(?:{rest})|{other}"
    found = span(pattern.replace("a", "A") if upper else pattern)
    if found is not None and compiled(pattern).matches(name):
        assert found[0] <= name.encode() <= found[1]
