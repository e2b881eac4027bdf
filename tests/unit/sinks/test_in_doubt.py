"""Transactions that may not count, of logs of real servers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from ray_canal.client.message import Message
from ray_canal.errors import UnsupportedEvent
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.offline import decode_chunks
from ray_canal.sinks.in_doubt import InDoubt, XaEnd, in_doubt, in_order, moved
from ray_canal.sinks.port import Changes, Cursor
from ray_canal.sinks.rows import Rows
from ray_canal.views.row_places import RowPlace
from tests.golden import GOLDEN
from tests.unit.views.test_transactions import with_queries

XA = "mysql97/mysql_xa"


class Kept:
    """What a target keeps, in memory."""

    def __init__(self, *, moves_all: bool = False) -> None:
        self.moves_all = moves_all
        self.by_id: dict[str, list[Rows]] = {}

    place: Cursor | None = None

    def has(self, xa_id: str) -> bool:
        return xa_id in self.by_id

    def keep(self, xa_id: str, transaction: str, rows: Rows, place: RowPlace) -> None:
        self.by_id.setdefault(xa_id, []).append(rows)

    def rows(self, xa_id: str, before: RowPlace, transaction: str = "") -> Sequence[Rows]:
        return self.by_id.get(xa_id, [])

    def end(self, xa_id: str) -> None:
        self.by_id.pop(xa_id, None)


def message_of(path: str | Path, first: int = 0, last: int | None = None) -> Message:
    """Entries of the last chunk of a file, which has all behind its DDL."""
    *_, (_, chunk) = decode_chunks([GOLDEN / f"{path}.binlog" if isinstance(path, str) else path])
    part = MessagePart(chunk, first, len(chunk.events) if last is None else last, None)
    return Message(MessageHead(1, 1, (part,)), lambda payloads: payloads)


def doubts_of(message: Message, kept: Kept | None) -> InDoubt | None:
    return in_doubt(message, None) if kept is None else in_doubt(message, kept.has, kept.moves_all)


def changes_of(message: Message, kept: Kept | None) -> Changes:
    """Return a message as the runner gives it to a target that keeps rows, or none."""
    ((part, chunk),) = message.chunks_by_part()
    return Changes(message, part, chunk, in_doubt=doubts_of(message, kept), kept=kept)


def shown(message: Message, kept: Kept | None) -> list[Changes]:
    """Write a message as the runner does; return its pieces."""
    pieces = changes_of(message, kept).pieces()
    for piece in pieces:
        _ = piece.batches
        piece.keep_prepared()
    return pieces


def count(pieces: Sequence[Changes]) -> int:
    return sum(batch.num_rows for piece in pieces for batch in piece.batches)


def prepares() -> list[tuple[str, str, int]]:
    """(outcome, XA id, entries up to its end) of the file's transactions, but those committed at
    once."""
    message = message_of(XA)
    ((_, chunk),) = message.chunks_by_part()
    behind = (chunk.events["position"] + chunk.events["length"]).tolist()
    return [
        (one["outcome"], one["xa_id"], len(behind) - behind[::-1].index(one["end"]))
        for one in message.transactions.to_pylist()
        if one["outcome"] != "committed"
    ]


def test_what_is_rolled_back_in_the_same_message_is_not_shown() -> None:
    """And what is prepared and committed in it is no exception."""
    message, kept = message_of(XA), Kept()
    told = {one["outcome"] for one in message.transactions.to_pylist()}
    assert {"prepared", "commit_prepared", "rollback_prepared"} <= told
    doubts = doubts_of(message, kept)
    assert doubts is not None
    assert not doubts.prepared
    undone = [
        one["rows"] for one in message.transactions.to_pylist()
        if one["transaction"] in doubts.undone
    ]  # fmt: skip
    assert sum(undone) > 0
    whole = sum(batch.num_rows for batch in message.batches)
    assert count(shown(message, kept)) == whole - sum(undone)
    assert not kept.by_id
    assert count(shown(message, None)) == whole  # a target that keeps none gets them as they come


def test_what_is_prepared_is_kept_until_its_end_comes() -> None:
    found = prepares()
    xa_id, cut = next(one[1:] for one in found if one[0] == "prepared")
    kept = Kept()
    early = message_of(XA, 0, cut)
    before = shown(early, kept)
    assert list(kept.by_id) == [xa_id]
    (rows,) = kept.by_id[xa_id]
    assert rows.meta is not None
    assert rows.batch.num_rows > 0
    whole = sum(batch.num_rows for batch in early.batches)
    assert count(before) == whole - rows.batch.num_rows

    late = message_of(XA, cut)
    doubts = doubts_of(late, kept)
    assert doubts is not None
    ((_, (ended, is_committed, _)), *_) = doubts.ends.items()
    assert ended == xa_id
    (ending,) = [piece for piece in changes_of(late, kept).pieces() if piece.ends_prepared]
    if is_committed:
        released = ending.batches[0].slice(0, rows.batch.num_rows)
        place = int(ending.chunk.events["position"][ending.part.first])
        assert released["position"].to_pylist() == [place] * rows.batch.num_rows
        row = rows.batch["row"][0].as_py()
        assert released["row"].to_pylist() == [(rows.batch["position"][0].as_py() << 30) + row]
        assert released["after"] == rows.batch["after"]
    ending.keep_prepared()
    assert not kept.by_id


def test_a_message_that_comes_again_keeps_what_was_kept() -> None:
    """It is cut elsewhere now, so that the end is in it: the rows are not written twice."""
    xa_id, cut = next(one[1:] for one in prepares() if one[0] == "prepared")
    kept, message = Kept(), message_of(XA)
    early = message_of(XA, 0, cut)
    shown(early, kept)
    held = kept.by_id[xa_id][0].batch.num_rows
    doubts = doubts_of(message, kept)
    assert doubts is not None
    assert xa_id in doubts.prepared.values()
    wholes = [changes_of(message, each) for each in (kept, Kept())]
    rest, plain = (each.between(cut, each.part.last).pieces() for each in wholes)
    is_committed = next(each[1] for each in doubts.ends.values() if each[0] == xa_id)
    assert count(rest) - count(plain) == (held if is_committed else 0)


def ids(pieces: Sequence[Changes]) -> list[tuple[int, int, str]]:
    """What a target gets: ids and images of rows, as they come."""
    return [
        (row["position"], row["row"], str(row["after"]))
        for piece in pieces
        for batch in piece.batches
        for row in batch.to_pylist()
    ]


def test_a_target_that_goes_by_ids_gets_the_same_ones_however_the_log_is_cut() -> None:
    """Also where what was cut comes again in one, and is not begun a second time."""
    message, kept = message_of(XA), Kept(moves_all=True)
    ((_, chunk),) = message.chunks_by_part()
    whole = shown(message, kept)
    assert len(whole) == 1  # a piece is a call of the target
    assert not whole[0].begins_commit
    assert not kept.by_id
    committed = [one for one in prepares() if one[0] == "commit_prepared"]
    places = [int(chunk.events["position"][last - 1]) for *_, last in committed]
    assert [at for at, row, _ in ids(whole) if row >= 1 << 30] == places
    assert ids(whole) == sorted(ids(whole))
    assert count(whole) == count(shown(message, Kept()))  # which has them at XA PREPARE
    for *_, cut in prepares():
        kept = Kept(moves_all=True)
        before = ids(shown(message_of(XA, 0, cut), kept))
        rest = shown(message_of(XA, cut), kept)
        assert before + ids(rest) == ids(whole)
        assert not any(piece.begins_commit for piece in rest)
        assert not kept.by_id


def test_what_the_target_has_come_to_lets_no_rows_count_again() -> None:
    """An id may be that of a later transaction by then, whose rows are kept."""
    xa_id, cut = next(one[1:] for one in prepares() if one[0] == "prepared")
    early, message, kept = message_of(XA, 0, cut), message_of(XA), Kept(moves_all=True)
    whole = ids(shown(message, Kept(moves_all=True)))
    shown(early, kept)
    kept.place = changes_of(early, kept).cursor
    pieces = changes_of(message, kept).pieces()
    assert [len(piece) for piece in pieces] == [cut, len(changes_of(message, kept)) - cut]
    assert ids(pieces) == whole
    kept.place = changes_of(message, kept).cursor
    pieces = shown(message, kept)
    assert [each for each in whole if each[1] < 1 << 30] == ids(pieces)
    assert list(kept.by_id) == [xa_id]


def test_rows_of_one_table_are_in_order_whatever_columns_they_have() -> None:
    batch = next(batch for batch in message_of(XA).batches if batch.num_rows > 2)
    other = batch.append_column("before_present", pa.nulls(batch.num_rows))
    found = in_order([Rows(batch.slice(2), None), Rows(other.slice(1, 1), None),
                      Rows(batch.slice(0, 1), None)])  # fmt: skip
    assert [rows.batch.num_columns - batch.num_columns for rows in found] == [0, 1, 0]
    places = [at for rows in found for at in rows.batch["position"].to_pylist()]
    assert places == batch["position"].to_pylist()
    bare = Rows(batch.drop_columns(["row"]), None)
    assert in_order([bare]) == [bare]


def test_a_log_without_any_is_not_looked_at() -> None:
    """MySQL 5.6 logs an XA transaction when it is committed."""
    assert doubts_of(message_of("mysql56/mysql56_xa"), Kept()) is None


@pytest.mark.parametrize("kept", [Kept(), None])
def test_rows_that_a_rollback_ends_do_not_count(kept: Kept | None, tmp_path: Path) -> None:
    path = tmp_path / "bin.000001"
    data = (GOLDEN / "mysql56" / "mysql56_xa.binlog").read_bytes()
    path.write_bytes(with_queries(data, b"COMMIT", b"ROLLBACK"))
    message = message_of(path)
    told = {one["outcome"]: one["rows"] for one in message.transactions.to_pylist()}
    assert told["rolled_back"] > 0
    assert count(shown(message, kept)) == told["committed"]


def test_rows_without_an_id_are_moved_as_they_are() -> None:
    message = message_of(XA)
    batch = message.batches[0].drop_columns(["row", "position"])
    (found,) = moved([Rows(batch, None)], RowPlace(3, 9, 4711, 0, "bin.000009"))
    assert found.batch["timeline"].to_pylist() == [3] * batch.num_rows
    assert set(found.batch["journal_name"].to_pylist()) == {"bin.000009"}
    assert found.batch.schema == batch.schema


def test_rows_too_far_in_a_file_for_an_id_are_an_error() -> None:
    batch = message_of(XA).batches[0]
    at = batch.schema.get_field_index("position")
    for position, is_refused in ((1 << 33, True), ((1 << 33) - 1, False)):
        far = pa.repeat(pa.scalar(position, batch.schema.field(at).type), batch.num_rows)
        rows = Rows(batch.set_column(at, batch.schema.field(at), far), None)
        expected = pytest.raises(UnsupportedEvent, match="behind byte 8,589,934,592")
        with expected if is_refused else contextlib.nullcontext():
            (found,) = moved([rows], RowPlace(3, 9, 4711, 0, "bin.000009"))
            assert min(found.batch["row"].to_pylist()) > 0


def test_rows_too_far_in_a_file_that_stay_where_they_are_get_no_id() -> None:
    """A batch has those of an XA transaction that ends, and others far behind in the file."""
    batch = message_of(XA).batches[0].slice(0, 2)
    names, positions = pa.array(["xa", "plain"]), pa.array([1 << 32, 1 << 33])
    for name, column in (("transaction", names), ("position", positions)):
        at = batch.schema.get_field_index(name)
        field = batch.schema.field(at)
        batch = batch.set_column(at, field, column.cast(field.type))
    doubts = InDoubt(frozenset(), {"xa": "X'01',X'',1"}, {}, {})
    found = doubts.counted(batch, [XaEnd("X'01',X'',1", True, "xa", 4711)])
    first, second = batch["row"].to_pylist()
    assert found["row"].to_pylist() == [(1 << 32 << 30) + first, second]
    assert found["position"].to_pylist() == [4711, 1 << 33]
