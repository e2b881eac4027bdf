"""Events that cannot be decoded, kept and decoded later: none is lost, and no other is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ray_canal.binlog import decode as decode_module
from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.binlog.measure import RowsFailure, measure
from ray_canal.binlog.packed_chunk import unpack
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.demo import binlog_files
from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.meta.open import open_schema_store
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import EVENT_AT
from ray_canal.redrive import redrive
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.open_source import open_source
from ray_canal.views.arrow import batches
from tests.unit.binlog.test_skip_events import NAME, ROWS, event, places_of

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def original() -> bytes:
    return binlog_files()[0].read_bytes()


def shown(batch: Any) -> Rows:
    """A batch's rows, without what depends on the rows before them in a transaction."""
    return [
        {key: row[key] for key in ("event_type", "position", "row", "before", "after")}
        for row in batch.to_pylist()
    ]


class Destination:
    """Reads one file by a policy, and keeps what is to be kept."""

    def __init__(self, folder: Path, path: Path, policy: str) -> None:
        self.config = {
            "meta": {"path": str(folder / "meta.db")},
            "instance": [
                {
                    "destination": "d",
                    "source": {"files": [str(path)], "on_undecodable": policy},
                }
            ],
        }
        self.rows: Rows = []
        self.infos: list[ChunkInfo] = []

    def run(self) -> None:
        instance = InstanceConfig.model_validate(self.config["instance"][0])  # type: ignore[index]
        store = open_schema_store(MetaConfig.model_validate(self.config["meta"]), "")
        source = open_source(instance)
        parser = EventParser(SchemaRegistry(), SchemaKeeper(None, "stop"))
        start = EntryPosition(NAME, 4)
        parser.begin([], "files", start)
        source.open(start)
        while (raw := source.read(0.0, 0.0)) is not None:
            info, decoded = parser.decode_chunk(raw)
            self.infos.append(info)
            for batch in batches(decoded, 0, len(info.entries)):
                self.rows += shown(batch)
            store.append("d", info.records)
            store.quarantine("d", info.quarantined)
            if info.failure is not None:
                break
        source.close()
        store.close()

    def redriven(self, **options: Any) -> Rows:
        found: Rows = []
        for given in redrive(self.config, "d", **options):
            for batch in given:
                found += shown(batch)
        return found


def whole(folder: Path) -> Rows:
    plain = Destination(folder / "plain", binlog_files()[0], "stop")
    (folder / "plain").mkdir(parents=True)
    plain.run()
    return plain.rows


def keyed(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["position"], row["row"]))


def broken_decoder(monkeypatch: pytest.MonkeyPatch, *positions: int) -> None:
    """A decoder that fails at these events."""

    def failing(raw: Any, parsed: Any, count: int, *more: Any) -> Any:
        for number, found in enumerate(parsed.events["position"][:count].tolist()):
            if found in positions and parsed.events["table"][number] >= 0:
                raise RowsFailure(number, UnsupportedEvent("a column of tomorrow"))
        return measure(raw, parsed, count, *more)

    monkeypatch.setattr(decode_module, "measure", failing)


@pytest.mark.parametrize("number", [0, 7, 20])
def test_what_a_decoder_cannot_read_is_kept_and_decoded_by_one_that_can(
    original: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """P4: the subscribers get all but that event, and redrive gives that event alone."""
    at = places_of(original, ROWS)[number]
    rows = whole(tmp_path)
    with monkeypatch.context() as patch:
        broken_decoder(patch, at)
        destination = Destination(tmp_path, binlog_files()[0], "dead_letter")
        destination.run()
        assert destination.rows == [row for row in rows if row["position"] != at]
        (letter,) = [held for info in destination.infos for held in info.quarantined]
        assert letter.tables == ((EVENT_AT, str(at)),)
        assert "a column of tomorrow" in letter.reason
        assert letter.position == at
        assert unpack(letter.data).data.size < len(original) // 20  # it, and what it needs
        with pytest.raises(UnsupportedEvent, match="a column of tomorrow"):
            destination.redriven()
    missed = destination.redriven(keep=True)
    assert keyed(missed) == keyed([row for row in rows if row["position"] == at])
    assert destination.redriven() == missed
    assert destination.redriven() == []


def test_one_that_can_still_not_be_decoded_keeps_no_other_back(
    original: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: it stays, and is said at the end."""
    one, two = places_of(original, ROWS)[3:5]
    rows = whole(tmp_path)
    with monkeypatch.context() as patch:
        broken_decoder(patch, one, two)
        destination = Destination(tmp_path, binlog_files()[0], "dead_letter")
        destination.run()
    found: Rows = []
    with monkeypatch.context() as patch:
        broken_decoder(patch, one)
        given = redrive(destination.config, "d")
        for batch in next(given):
            found += shown(batch)
        with pytest.raises(UnsupportedEvent):
            next(given)
    assert keyed(found) == keyed([row for row in rows if row["position"] == two])
    assert {row["position"] for row in destination.redriven()} == {one}


def test_an_unknown_event_is_skipped_or_kept(original: bytes, tmp_path: Path) -> None:
    """P4: by the policy; to stop is the default."""
    at = places_of(original, ROWS)[5]
    path = tmp_path / NAME
    path.write_bytes(original[:at] + event(200) + original[at:])
    for policy, kept, passes in (("stop", 0, False), ("skip", 0, True), ("dead_letter", 1, True)):
        destination = Destination(tmp_path, path, policy)
        destination.run()
        held = [held for info in destination.infos for held in info.quarantined]
        assert len(held) == kept
        assert (destination.infos[-1].failure is None) is passes
        skipped = [each for info in destination.infos for each in info.skipped]
        assert [each.position for each in skipped] == [at] * passes
        assert (len(destination.rows) == len(whole(tmp_path / policy))) is passes


def test_a_bad_checksum_is_no_dead_letter(original: bytes, tmp_path: Path) -> None:
    """P4: bytes may have changed on their way, and come well the next time."""
    at = places_of(original, ROWS)[5]
    path = tmp_path / NAME
    path.write_bytes(original[: at + 30] + bytes([original[at + 30] ^ 1]) + original[at + 31 :])
    destination = Destination(tmp_path, path, "dead_letter")
    destination.run()
    assert isinstance(destination.infos[-1].failure, CorruptEvent)


def test_a_table_whose_events_all_fail_stops_the_destination(
    original: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: that is no matter of single events."""
    places = places_of(original, ROWS)
    broken_decoder(monkeypatch, *places)
    monkeypatch.setattr(decode_module, "_LEFT_OUT_MAX", 3)
    destination = Destination(tmp_path, binlog_files()[0], "dead_letter")
    destination.run()
    assert isinstance(destination.infos[-1].failure, UnsupportedEvent)
