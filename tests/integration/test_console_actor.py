"""The console as an actor: opened by `start`, left alone or reopened by `apply`, and it heals."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import ray
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import cli
from ray_canal.actors.port_actor import find_port
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError
from tests.processes import wait_for
from tests.servers.run import free_port

pytestmark = pytest.mark.usefixtures("local_ray")

NAMESPACE = "console_actor"


def asked(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/destinations", timeout=30) as answer:
        return json.load(answer)


def answers(url: str) -> bool:
    try:
        return [each["name"] for each in asked(url) if each["status"]] == ["replayed"]
    except (OSError, http.client.HTTPException, ValueError):  # it may end in the midst of an answer
        return False


def logged() -> list[dict[str, Any]]:
    """Lines about the destination, out of the logs of Ray's workers."""
    folder = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    found = []
    for path in folder.glob("worker-*.err"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("{") and '"destination": "replayed"' in line:
                found.append(json.loads(line))
    return found


def is_told(event: str, **values: str) -> bool:
    return any(
        each.get("event") == event and values.items() <= each.items() for each in logged()
    )


def test_a_deployment_opens_and_closes_its_console(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    text = (
        f'[ray]\nnamespace = "{NAMESPACE}"\ndestinations_per_process = 0\n'
        '[meta]\npath = "meta.db"\n'
        f'[[instance]]\ndestination = "replayed"\nsource.files = ["{binlog_files()[0]}"]\n'
        "decoders = 1\n"
        '[[sink]]\nname = "lines"\ndestination = "replayed"\ntype = "jsonl"\n'
        'path = "lines"\nclient_id = 2001\n'
        '[log]\nformat = "json"\n'
        f"[console]\nport = {free_port()}\nrefresh_s = 0.5\n"
    )
    config.write_text(text)
    try:
        canal.start(str(config))
        url = canal.serve_console(str(config))
        wait_for(lambda: answers(url), 60, "the console shows what runs")
        wait_for(lambda: is_told("state", state="running"), 60, "lines of JSON")
        for stage in ("fetcher", "parser", "transaction buffer"):
            wait_for(lambda at=stage: is_told("stage", stage=at), 60, stage)  # type: ignore[misc]
        (shown,) = asked(url)
        epochs = {each["epoch"] for each in logged() if each.get("event") == "generation"}
        assert shown["status"]["epoch"] in epochs  # what joins a page and the logs
        canal.start_sinks(str(config))
        wait_for(lambda: is_told("sink", sink="lines", state="begun"), 60, "the sink's line")
        canal.stop_sink("lines", namespace=NAMESPACE)
        wait_for(lambda: is_told("sink", sink="lines", state="stopped"), 60, "the sink's end")
        told = CliRunner().invoke(cli.app, ["apply", str(config), "--dry-run"])
        assert "console" not in told.output
        config.write_text(text + "tails_max = 3\n")
        told = CliRunner().invoke(cli.app, ["apply", str(config), "--yes"], catch_exceptions=False)
        assert "~ the console" in told.output
        assert "tails_max" in told.output
        wait_for(lambda: answers(url), 60, "it is opened again")
        handle = find_port("canal-console", NAMESPACE)
        assert handle is not None
        ray.kill(handle, no_restart=False)
        wait_for(lambda: answers(url), 60, "it is there again after its process died")
        canal.stop_console(namespace=NAMESPACE)
        with pytest.raises((urllib.error.URLError, ConnectionResetError)):
            asked(url)
        assert canal.destinations(namespace=NAMESPACE) == ["replayed"]
    finally:
        canal.stop_console(namespace=NAMESPACE)
        canal.stop("replayed", namespace=NAMESPACE)


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    """And leaves no actor that tries again for ever."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = {
            "ray": {"namespace": NAMESPACE},
            "instance": [{"destination": "a", "source": {"files": [str(binlog_files()[0])]}}],
            "console": {"port": port},
        }
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            canal.serve_console(config)
    assert find_port("canal-console", NAMESPACE) is None
