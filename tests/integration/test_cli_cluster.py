"""The command on a cluster that runs already: what it stops, and in which namespace."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from typer.testing import CliRunner, Result

import ray_canal as canal
from ray_canal import cli, errors
from ray_canal.actors import registry
from ray_canal.demo import binlog_files
from ray_canal.destination.status.webhook import signature
from ray_canal.model.position import EntryPosition
from tests.http_receiver import HttpReceiver
from tests.processes import wait_for

pytestmark = pytest.mark.usefixtures("local_ray")

NAMESPACE = "tenant"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], catch_exceptions=False)


def rows_of(name: str) -> float:
    """How many rows a destination's log has got, as the command says."""
    told = command("status", "--json", "--namespace", NAMESPACE).output
    return float(json.loads(told)[name]["rows"])


def written(folder: Path, *names: str) -> Path:
    """A configuration of destinations that read the bundled files, in a namespace of its own."""
    config = folder / f"{'_'.join(names)}.toml"
    config.write_text(
        f'[ray]\nnamespace = "{NAMESPACE}"\n[meta]\npath = "meta.db"\n'
        + "".join(
            f'[[instance]]\ndestination = "{name}"\nsource.files = ["{binlog_files()[0]}"]\n'
            for name in names
        )
    )
    return config


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as soon as the command waits for it."""

    @contextlib.contextmanager
    def at_once() -> Iterator[threading.Event]:
        stopped = threading.Event()
        stopped.set()
        yield stopped

    monkeypatch.setattr(cli, "_until_signal", at_once)


@pytest.mark.soak
@pytest.mark.usefixtures("signalled")
def test_start_stops_what_it_started_in_its_namespace(tmp_path: Path) -> None:
    """b17: a destination that ran before an attached `start` goes on after its Ctrl-C. D2: what is
    in another namespace is stopped and shown there."""
    canal.start(str(written(tmp_path, "early")))
    try:
        done = command("start", written(tmp_path, "early", "late"))
        assert done.exit_code == 0, done.output
        assert "early: running, started before" in done.output
        assert "late: stopped" in done.output
        assert "early: stopped" not in done.output
        assert canal.destinations(namespace=NAMESPACE) == ["early"]
        told = CliRunner().invoke(
            cli.app, ["start", str(written(tmp_path, "early", "late")), "--json"]
        )
        ran = {"early": "running, started before", "late": "running"}
        assert json.loads(told.stdout) == {
            "destinations": ran, "tcp": [], "ports": {}, "sinks": [],
        }  # fmt: skip
        assert "late: stopped" in told.stderr
        shown = command("status", "early", "--namespace", NAMESPACE)
        assert "early" in shown.output
        with pytest.raises(errors.InstanceNotFound):
            command("status", "early")
    finally:
        stopped = command("stop", "early", "--json", "--namespace", NAMESPACE)
    assert json.loads(stopped.output) == {"stopped": "early"}
    assert canal.destinations(namespace=NAMESPACE) == []


def test_subscribers_are_shown_and_removed(tmp_path: Path) -> None:
    """b2: of a destination that runs, has failed, or is down."""
    config = written(tmp_path, "held")
    canal.start(str(config))
    try:
        with canal.connect("held", 7, namespace=NAMESPACE) as connector:
            connector.subscribe()
            assert connector.get(1, timeout=10)
        for more in (("--namespace", NAMESPACE), ("--config", config)):
            shown = json.loads(command("subscribers", "--json", *more).output)
            assert [each["client_id"] for each in shown["held"]] == [7]
            assert "mysql-bin" in command("subscribers", "held", *more).output
        with pytest.raises(errors.NotSubscribed, match="no subscriber 8"):
            command("unsubscribe", "held", 8, "--namespace", NAMESPACE)
        where = ("--json", "--namespace", NAMESPACE)
        narrowed = command("filter", "held", r"shop\.orders", "--client-id", 7, *where)
        assert json.loads(narrowed.output) == {"client_id": 7, "filter": r"shop\.orders"}
        own = command("filter", "held", "--instance", "--set", "dml_delete=false", *where)
        assert json.loads(own.output)["dml_delete"] is False
        done = command("unsubscribe", "held", 7, *where)
        assert json.loads(done.output) == {"removed": 7}
        assert canal.subscribers("held", namespace=NAMESPACE) == {"held": []}
        with canal.connect("held", 9, namespace=NAMESPACE) as connector:
            connector.subscribe()
    finally:
        canal.stop("held", namespace=NAMESPACE)
    with pytest.raises(errors.InstanceNotFound):
        command("subscribers", "held", "--namespace", NAMESPACE)
    shown = json.loads(command("subscribers", "--json", "--config", config).output)
    assert [each["client_id"] for each in shown["held"]] == [9]
    done = command("unsubscribe", "held", 9, "--config", config)
    assert done.exit_code == 0
    assert "held: no subscriber" in command("subscribers", "--config", config).output


def test_a_subscriber_is_operated(tmp_path: Path) -> None:
    """Moved, paused, labelled, copied, renamed and removed; while it is down by --config."""
    config = written(tmp_path, "operated")
    where: tuple[object, ...] = ("--namespace", NAMESPACE)

    def operate(*arguments: object) -> Any:
        told = command("subscriber", "operated", *arguments, "--json", *where).output
        return json.JSONDecoder().raw_decode(told)[0]  # what Ray's workers log may follow

    canal.start(str(config))
    try:
        with canal.connect("operated", 7, namespace=NAMESPACE) as connector:
            connector.subscribe()
            first = connector.get(1, timeout=10)
            one = canal.subscriber("operated", 7, namespace=NAMESPACE)
            assert one.pause()["paused_at"]
            assert connector.get(1, timeout=0.2).id == -1
            assert "client 7 is paused" in command("explain", "operated", "--client-id", 7,
                                                   *where).output  # fmt: skip
            assert operate(7, "resume")["paused_at"] is None
            assert connector.get(1, timeout=10)
            begin = binlog_files()[0].name
            assert one.seek(EntryPosition(begin))["cursor"] == f"{begin}:4"
            again = connector.get(1, timeout=30)
            assert again.start == first.start
            assert one.label("warehouse")["label"] == "warehouse"
            assert "label: warehouse" in command("subscriber", "operated", 7, *where).output
            assert operate(7, "copy", 9)["client_id"] == 9
            assert operate(9, "remove") == {"removed": 9}
            with pytest.raises(errors.PositionNotFound):
                command("subscriber", "operated", 7, "seek", "other.000001:4", *where)
            assert command("subscriber", "operated", 7, "seek", *where).exit_code == 2
            assert command("subscriber", "operated", 7, "copy", "x", *where).exit_code == 2
    finally:
        canal.stop("operated", namespace=NAMESPACE)
    where = ("--config", config)
    assert operate(7, "rename", 8)["client_id"] == 8
    assert operate(8)["label"] == "warehouse"
    assert "no subscriber any more" in command(
        "subscriber", "operated", 8, "remove", *where
    ).output  # fmt: skip


def test_apply_changes_what_differs_and_nothing_else(tmp_path: Path) -> None:
    """A diff first; what is the same is not touched; what is not listed goes with --remove."""
    config = written(tmp_path, "kept", "gone")
    canal.start(str(config))
    try:
        epochs = {name: one["epoch"] for name, one in canal.status(namespace=NAMESPACE).items()}
        wanted = written(tmp_path, "kept", "fresh")
        text = wanted.read_text()
        dry = command("apply", wanted, "--dry-run")
        assert dry.output.splitlines() == [
            "+ destination fresh",
            "= destination gone: not in this file, goes on (--remove stops it)",
            "= destination kept",
        ]
        assert canal.destinations(namespace=NAMESPACE) == ["gone", "kept"]
        assert command("apply", config, "--json").exit_code == 0  # nothing to ask
        asked = CliRunner().invoke(cli.app, ["apply", str(wanted)], input="n\n")
        assert asked.exit_code == 1
        done = command("apply", wanted, "--yes", "--remove")
        assert "applied" in done.output
        assert canal.destinations(namespace=NAMESPACE) == ["fresh", "kept"]
        assert canal.status("kept", namespace=NAMESPACE)["kept"]["epoch"] == epochs["kept"]
        line = 'destination = "kept"\n'
        wanted.write_text(text.replace(line, f'{line}store.policy = "spill"\n'))
        done = command("apply", wanted, "--yes")
        assert "    store.policy: 'block' -> 'spill'" in done.output.splitlines()
        assert canal.status("kept", namespace=NAMESPACE)["kept"]["epoch"] > epochs["kept"]
        assert canal.plan(str(wanted))["same"] == ["kept", "fresh"]
    finally:
        for name in canal.destinations(namespace=NAMESPACE):
            canal.stop(name, namespace=NAMESPACE)


@pytest.mark.soak
def test_people_are_told_by_a_signed_webhook(tmp_path: Path) -> None:
    """A destination that is stopped, and one whose subscriber cannot be served."""
    config = written(tmp_path, "told", "other")
    with HttpReceiver() as receiver:
        (tmp_path / "url").write_text(receiver.url)
        (tmp_path / "secret").write_text("s3cret\n")
        notify = '[notify]\nurl = "file:url"\nsecret = "file:secret"\nevery_s = 0.3\n'
        config.write_text(notify + config.read_text())
        canal.start(str(config))
        try:
            notifier = registry.find_notifier(NAMESPACE)
            assert notifier is not None
            canal.start(str(config))  # the same: it goes on
            assert registry.find_notifier(NAMESPACE)._actor_id == notifier._actor_id
            config.write_text(config.read_text().replace("0.3", "0.2"))
            canal.start(str(config))
            assert registry.find_notifier(NAMESPACE)._actor_id != notifier._actor_id
            now = registry.find_notifier(NAMESPACE)
            assert now is not None
            receiver.until(lambda: ray.get(now.looks.remote()) > 0)
            canal.stop("other", namespace=NAMESPACE)
            wanted = b"other was stopped"
            receiver.until(lambda: any(wanted in body for _, body in receiver.requests))
            headers, body = next(each for each in receiver.requests if wanted in each[1])
            told = json.loads(body)
            assert (told["destination"], told["event"]) == ("other", "state")
            stamp = headers["X-Ray-Canal-Timestamp"]
            assert headers["X-Ray-Canal-Signature"] == signature("s3cret", stamp, body)
        finally:
            for name in canal.destinations(namespace=NAMESPACE):
                canal.stop(name, namespace=NAMESPACE)
    deadline = time.monotonic() + 30
    while registry.find_notifier(NAMESPACE) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert registry.find_notifier(NAMESPACE) is None


def test_status_and_explain_are_for_people(tmp_path: Path) -> None:
    """A line on the screen, every value on demand, and why nothing more comes."""
    canal.start(str(written(tmp_path, "shown")))
    where = ("--namespace", NAMESPACE)
    try:
        with canal.connect("shown", 7, namespace=NAMESPACE) as connector:
            connector.subscribe()
            assert connector.get_without_ack(1, timeout=10)
            heading, line, *_ = command("status", *where).output.splitlines()
            assert heading.split()[:3] == ["destination", "state", "lag"]
            assert line.split()[0] == "shown"
            assert "7: " in line
            assert "batch_mode" in command("status", "shown", "--details", *where).output
            wait_for(lambda: rows_of("shown") > 0, 30, "a row in the log")
            told = command("explain", "shown", "--client-id", 7, *where)
            assert told.exit_code == 0, told.output
            assert "client 7 is being served" in told.output
            assert "1 batch handed out" in told.output
        nobody = command("explain", "shown", "--client-id", 8, "--json", *where)
        assert nobody.exit_code == 1
        assert json.loads(nobody.output)["evidence"] == ["subscribers: 7"]
        assert canal.explain("shown", namespace=NAMESPACE).severity == "ok"
        with pytest.raises(errors.InstanceNotFound):
            command("explain", "other", *where)
    finally:
        canal.stop("shown", namespace=NAMESPACE)


def test_tail_looks_on(tmp_path: Path) -> None:
    """D1: it takes over nobody, acks nobody's rows, and leaves nothing; with --client-id it shows
    what that subscriber gets next."""
    canal.start(str(written(tmp_path, "watched")))
    try:
        with canal.connect("watched", 1001, namespace=NAMESPACE) as connector:
            connector.subscribe()
            assert connector.get(1, timeout=10)
            (before,) = canal.subscribers("watched", namespace=NAMESPACE)["watched"]
            options = ("--limit", 3, "--namespace", NAMESPACE)
            first, second = (command("tail", "watched", *options) for _ in range(2))
            assert len(first.output.splitlines()) == 3
            assert first.output == second.output
            assert command("tail", "watched", "--json", *options).output == first.output
            (after,) = canal.subscribers("watched", namespace=NAMESPACE)["watched"]
            assert after["cursor"] == before["cursor"]
            assert connector.get(1, timeout=10)
            (before,) = canal.subscribers("watched", namespace=NAMESPACE)["watched"]
            like = command("tail", "watched", "--client-id", 1001, *options)
            changes = [json.loads(line) for line in like.output.splitlines()]
            assert len(changes) == 3
            begin = before["cursor"].partition(":")[2].partition("+")[0]
            assert all(change["position"] >= int(begin) for change in changes)
            (after,) = canal.subscribers("watched", namespace=NAMESPACE)["watched"]
            assert (after["cursor"], after["held_by"]) == (before["cursor"], before["held_by"])
            assert connector.get(1, timeout=10)  # nobody has taken it over
    finally:
        canal.stop("watched", namespace=NAMESPACE)


_OF_ANOTHER_RAY = """
import ray

ray.__version__ = "2.0.0"
from ray_canal.cli import main

main()
"""


def test_a_cluster_of_other_versions_is_named_with_them() -> None:
    """Ray compares its own version and Python's with those of whoever joins."""
    address = ray.get_runtime_context().gcs_address
    said = subprocess.run(
        [sys.executable, "-c", _OF_ANOTHER_RAY, "status"],
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode
    assert "Traceback" not in said.stderr, said.stderr
    text = " ".join(said.stderr.split())
    assert f"The cluster was started with: Ray: {ray.__version__}" in text
    assert "started with: Ray: 2.0.0" in text
    assert "RAY_ADDRESS=local" in text
