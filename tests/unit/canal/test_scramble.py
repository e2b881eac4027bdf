"""scramble411 against what a real Canal client sent, and against everything that is not it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_canal.canal.scramble import accepts, parsed_hash, password_hash, scramble411
from ray_canal.errors import ConfigError


def test_the_java_clients_answer_from_the_transcript() -> None:
    """It had no password; the seed and the answer are those of tests/golden/data/wire."""
    seed = bytes.fromhex("bf77838ddd0c5610")
    answer = b"9861e18db76283d1ff5e6af4401d7edd6b86df70"
    assert scramble411("", seed).hex().encode() == answer
    assert accepts(password_hash(""), seed, answer)


def test_the_hash_is_mysqls() -> None:
    """SELECT PASSWORD('canal') of MySQL 5.6, which Canal's documents give as canal.passwd, too."""
    hexadecimal = "E3619321C1A937C46A0D8BD1DAC39F93B27D4458"
    assert password_hash("canal") == parsed_hash(hexadecimal) == parsed_hash("*" + hexadecimal)


@given(st.text(), st.text(), st.binary(min_size=8, max_size=8))
def test_only_the_password_is_accepted(password: str, other: str, seed: bytes) -> None:
    answer = scramble411(other, seed).hex().encode()
    assert accepts(password_hash(password), seed, answer) == (password == other)


@given(st.binary(max_size=60))
def test_no_answer_crashes(answer: bytes) -> None:
    assert not accepts(password_hash("canal"), bytes(8), answer)


@pytest.mark.parametrize("text", ["", "canal", "E361", "*" + "G" * 40])
def test_a_hash_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed_hash(text)
    assert "password_hash" in str(caught.value)
    assert not text or text not in str(caught.value)
