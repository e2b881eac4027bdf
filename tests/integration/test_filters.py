"""Filters through the whole pipeline: the instance's before rows are decoded, a subscriber's on top
of it, changed while it reads."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.cli import app as cli
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, InstanceRestarted, NotSubscribed
from ray_canal.offline import decode_files
from ray_canal.render import changes

DESTINATION = "filtered"
WANTED = r"shop\.(orders|customers)"


@contextlib.contextmanager
def running(folder: Path, decoders: int, **drops: Any) -> Iterator[None]:
    canal.start(
        {
            "meta": {"path": str(folder / "meta.db")},
            "instance": [
                {
                    "destination": DESTINATION,
                    "source": {"files": [str(path) for path in binlog_files()]},
                    "filter": {"tables": WANTED, **drops},
                    "decoders": decoders,
                }
            ],
        }
    )
    try:
        yield
    finally:
        canal.stop(DESTINATION)


def everything() -> list[dict[str, Any]]:
    """All changes of the wanted tables, in the log's order."""
    found = told(decode_files(binlog_files(), tables=WANTED))
    return sorted(found, key=place)


def told(batches: Iterable[Any]) -> list[dict[str, Any]]:
    """Changes without their timeline: files that are decoded without a destination have none."""
    return [
        {key: value for key, value in change.items() if key != "timeline"}
        for change in changes(list(batches))
    ]


def place(change: dict[str, Any]) -> Any:
    return change["journal_name"], change["position"], change["row"]


@pytest.mark.usefixtures("local_ray")
def test_instance_and_subscriber(tmp_path: Path) -> None:
    with (
        running(tmp_path, 1, dml_delete=True, query_ddl=True, transaction_entry=True),
        canal.connect(DESTINATION, client_id=5) as connector,
    ):
        with pytest.raises(NotSubscribed):
            canal.set_filter(DESTINATION, r"shop\..*", client_id=5)
        connector.subscribe()  # all tables: the destination's filter stays
        first = connector.get_without_ack(batch_size=8, timeout=60.0)
        with pytest.raises(ConfigError, match="not a regular expression"):
            canal.set_filter(DESTINATION, "(", client_id=5)
        canal.set_filter(DESTINATION, r"shop\.customers", client_id=5)
        before = told(first.batches)
        connector.ack(first.id)
        after: list[dict[str, Any]] = []
        kinds = [(entry.entryType, entry.header.eventType) for entry in first.entries]
        for message in connector:
            after += told(message.batches)
            kinds += [(entry.entryType, entry.header.eventType) for entry in message.entries]
        shown = canal.status(DESTINATION)[DESTINATION]["store"]["subscribers"]["5"]["filter"]
        assert shown == r"shop\.customers"
    wanted = [change for change in everything() if change["event_type"] != "DELETE"]
    assert before
    assert sorted(before, key=place) == wanted[: len(before)]
    rest = [c for c in wanted[len(before) :] if c["table"] == "customers"]
    assert rest
    assert sorted(after, key=place) == rest
    row_kinds = [kind for entry, kind in kinds if entry == pb.ROWDATA]
    assert set(row_kinds) <= {pb.INSERT, pb.UPDATE, pb.QUERY}  # no DDL, no DELETE
    pairs = [kind for kind, _ in kinds if kind in (pb.TRANSACTIONBEGIN, pb.TRANSACTIONEND)]
    assert pairs == [pb.TRANSACTIONBEGIN, pb.TRANSACTIONEND] * (len(pairs) // 2)


@pytest.mark.usefixtures("local_ray")
def test_the_instances_own_is_changed_while_it_runs(tmp_path: Path) -> None:
    def now() -> Any:
        return canal.status(DESTINATION)[DESTINATION]["filter"]

    with running(tmp_path, 0), canal.connect(DESTINATION, client_id=5) as connector:
        connector.subscribe()
        first = connector.get_without_ack(batch_size=8, timeout=60.0)
        seen = told(first.batches)
        connector.ack(first.id)
        old = sorted(seen, key=place)
        void = connector.get_without_ack(batch_size=8, timeout=60.0)
        for wrong in ({"tables": "("}, {"table": "a"}):
            with pytest.raises(ConfigError, match="filter"):
                canal.set_instance_filter(DESTINATION, **wrong)
        assert void.id in connector.list_batch_ids()
        found = canal.set_instance_filter(DESTINATION, tables=r"shop\.customers", dml_delete=True)
        assert found == now() != {"tables": WANTED}
        with pytest.raises(InstanceRestarted):
            connector.ack(void.id)
        second = connector.get_without_ack(batch_size=8, timeout=60.0)
        seen += (other := told(second.batches))
        connector.ack(second.id)
        assert {change["table"] for change in other} == {"customers"}
    with running(tmp_path, 1), canal.connect(DESTINATION, client_id=5) as connector:
        assert now() == found  # it is durable
        connector.subscribe()
        for message in connector:
            seen += told(message.batches)
        # The log is at its end: what a wider filter admits again lies behind the cursor, too.
        wider = ["filter", DESTINATION, WANTED, "--instance", "--set", "rows=1"]
        said = CliRunner().invoke(cli, wider)
        assert (said.exit_code, now()["tables"], now()["rows"]) == (0, WANTED, True), said.output
        assert changes(connector.get(timeout=1.0).batches) == []
    with running(tmp_path, 1, dml_insert=True):  # another canal.toml: that counts
        assert now() == {**found, "tables": WANTED, "dml_delete": False, "dml_insert": True}
    seen.sort(key=place)
    at = len(old)
    wanted = everything()
    assert seen[:at] == wanted[:at]
    assert seen[at:] == [
        change
        for change in wanted[at:]
        if change["table"] == "customers" and change["event_type"] != "DELETE"
    ]


@pytest.mark.usefixtures("local_ray")
def test_row_steps_of_one_subscriber(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASH_KEY", "a key")
    with (
        running(tmp_path, 0),
        canal.connect(DESTINATION, client_id=1) as plain,
        canal.connect(DESTINATION, client_id=2) as stepped,
    ):
        plain.subscribe()
        with pytest.raises(ConfigError, match="is no SQL expression"):
            stepped.subscribe(where="after.id >")
        stepped.subscribe(
            where={
                r"shop\.customers": "event_type = 'UPDATE' AND after.id % 2 = 0 "
                "AND NOT (before.email <=> NULL)"
            },
            columns={r"shop\.customers": ["id", "email", "name"]},
            mask={r"shop\.customers": {"name": canal.Keep(first=1)}},
            hash={r"shop\.customers": {"email": "env:HASH_KEY"}},
        )
        everything = [change for message in plain for change in changes(message.batches)]
        found: list[dict[str, Any]] = []
        for message in stepped:
            with pytest.raises(ConfigError, match="has row steps"):
                list(message.entries)
            found += changes(message.batches)
    everything.sort(key=place)
    found.sort(key=place)
    orders = [change for change in everything if change["table"] == "orders"]
    assert [change for change in found if change["table"] == "orders"] == orders
    customers = [change for change in found if change["table"] == "customers"]
    wanted = [
        change
        for change in everything
        if change["table"] == "customers"
        and change["event_type"] == "UPDATE"
        and change["after"]["id"] % 2 == 0
    ]
    assert wanted
    assert [place(change) for change in customers] == [place(change) for change in wanted]
    for shown, whole in zip(customers, wanted, strict=True):
        for image in ("before", "after"):
            name, email = whole[image]["name"], whole[image]["email"]
            assert shown[image] == {
                "id": whole[image]["id"],
                "email": hmac.new(b"a key", email.encode(), hashlib.sha256).hexdigest(),
                "name": name[0] + "*" * (len(name) - 1),
            }
