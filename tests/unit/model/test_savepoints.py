"""Savepoints of a transaction, against a list of its rows that really shrinks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ray_canal.model.savepoints import Savepoints, SavepointStatement, UndoneRows

BEGIN = 5


@st.composite
def steps(draw: st.DrawFn) -> list[str]:
    return draw(st.lists(st.sampled_from(["row", "row", "Sa", "Sb", "Sc", "Ra", "Rb", "Rc"])))


@given(steps())
def test_what_is_left_is_what_a_server_leaves(found: list[str]) -> None:
    savepoints, rows, marks = Savepoints(BEGIN), list[int](), dict[str, int]()
    written = []
    for position, step in enumerate(found, BEGIN):
        if step == "row":
            rows.append(position)
            written.append(position)
            continue
        word, name = step
        if word == "S":
            marks.pop(name, None)
            marks[name] = len(rows)
        else:
            del rows[marks.get(name, 0) :]
            while marks and next(reversed(marks)) != name:
                marks.popitem()
        before = savepoints.known, savepoints.undone
        statement = SavepointStatement(position, position, 0, name, word == "R")
        savepoints.add(statement)
        again = Savepoints(BEGIN, *before)  # in the next chunk
        again.add(statement)
        assert (again.known, again.undone) == (savepoints.known, savepoints.undone)
    undone = savepoints.undone
    assert all(low.end <= high.begin for low, high in pairwise(undone))
    left = [row for row in written if not any(one.begin <= row < one.end for one in undone)]
    assert left == rows
    assert [one.name for one in savepoints.known] == list(marks)


def test_rows_within_one_event_are_told_apart() -> None:
    """Of a compressed event: all have its position."""
    savepoints = Savepoints(BEGIN)
    savepoints.add(SavepointStatement(1, 100, 40, "a", undoes=False))
    savepoints.add(SavepointStatement(3, 100, 90, "a", undoes=True))
    assert savepoints.undone == (UndoneRows(100, 40, 100, 90),)
