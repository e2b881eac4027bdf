"""Errors: one positional message, place as attributes, and all of it survives a pickle (Ray's
way)."""

from __future__ import annotations

import inspect
import pickle

import pytest

from ray_canal import errors

ALL = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_a_pickle_with_its_place(kind: type[errors.CanalError]) -> None:
    error = kind("what is wrong").at("mysql-bin.000042", 1234, "orders")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "what is wrong [destination orders, mysql-bin.000042 offset 1234]"
    assert (copy.journal_name, copy.position) == ("mysql-bin.000042", 1234)


def test_only_what_may_heal_is_retryable() -> None:
    assert {kind.__name__ for kind in ALL if kind.retryable} == {
        "ConnectionLost",
        "TransactionsMissing",
        "LogRenamed",
        "InstanceNotRunning",
        "MetaUnavailable",
        "InstanceRestarted",
        "EpochLost",
        "CursorNotInLog",
    }


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert [k.__name__ for k in ALL if k.__name__ not in errors.__doc__] == []
