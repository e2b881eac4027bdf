"""Programs of a cluster of several nodes, for tests whose own process is in none.

    python -m tests.fault.cluster_program ADDRESS wait NODES            so many nodes are there
    python -m tests.fault.cluster_program ADDRESS start CONFIG FOLDER NODES   a deployment, and
        readers, as soon as so many nodes are there; prints when which step was done, as JSON
    python -m tests.fault.cluster_program ADDRESS nodes                 what is where, as JSON

The readers are an actor on a node that has the resource `readers`. For each destination it appends
a line of JSON to FOLDER/DESTINATION.jsonl for each row that it receives for the first time, before
it acknowledges it. FOLDER/seen.json has what is where, again and again.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

import ray_canal as canal
from ray_canal.actors.control.homes import cluster_nodes
from ray_canal.config import load
from ray_canal.errors import CanalError

CLIENT = 1
_LOOK_S = 1.0
_SLOW_S = 60.0


class Readers:
    """Reads each destination in a thread of its own, also while the head is away."""

    def __init__(self, names: list[str], folder: str) -> None:
        self._folder = Path(folder)
        for name in names:
            threading.Thread(target=self._read, args=(name,), daemon=True).start()
        threading.Thread(target=self._look, args=(names,), daemon=True).start()

    def ready(self) -> None:
        return

    def _read(self, name: str) -> None:
        rows = _Rows(self._folder / f"{name}.jsonl")
        while True:
            try:
                with canal.connect(name, CLIENT) as connector:
                    connector.subscribe()
                    while True:
                        rows.take(connector)
            except CanalError:
                time.sleep(0.1)

    def _look(self, names: list[str]) -> None:
        made = self._folder / "seen.new"
        told = ""
        with (self._folder / "look.log").open("a") as log:
            while True:
                asked = time.time()
                faulthandler.dump_traceback_later(_SLOW_S, file=log)  # where a look stands still
                try:
                    made.write_text(json.dumps({"at": asked, **_seen(names)}))
                    os.replace(made, self._folder / "seen.json")
                    failure = ""
                except (CanalError, RayError):
                    failure = traceback.format_exc(limit=3)
                except Exception:  # nobody else would look
                    failure = f"unexpected: {traceback.format_exc()}"
                faulthandler.cancel_dump_traceback_later()
                if failure != told:
                    log.write(f"{time.time():.1f} after {time.time() - asked:.1f} s: {failure}\n")
                    log.flush()
                    told = failure
                time.sleep(_LOOK_S)


def _newest(path: Path) -> int:
    """The last row that an earlier life has received."""
    if not path.exists() or not (lines := path.read_text().splitlines()):
        return 0
    newest: int = json.loads(lines[-1])["id"]
    return newest


class _Rows:
    """The rows of one destination that were received, in a file. What comes again, because its
    acknowledgement failed, is left out."""

    def __init__(self, path: Path) -> None:
        self._newest = _newest(path)
        self._path = path

    def take(self, connector: canal.Connector) -> None:
        message = connector.get_without_ack(200, 1.0)
        if not message:
            return
        now = time.time()
        with self._path.open("a", encoding="ascii") as file:
            for batch in message.batches:
                for row in batch.to_pylist():
                    if row["after"]["id"] > self._newest:
                        self._newest = row["after"]["id"]
                        file.write(json.dumps({"id": self._newest, "at": now}) + "\n")
        connector.ack(message.id)


def _seen(names: list[str]) -> dict[str, Any]:
    status = canal.status()
    return {
        "nodes": canal.nodes(),
        "generations": {name: status.get(name, {}).get("generations") for name in names},
        "states": {name: status.get(name, {}).get("state") for name in names},
        "errors": {name: each["error"] for name, each in status.items() if each.get("error")},
    }


def _wait(nodes: int) -> None:
    while len(cluster_nodes()) < nodes:
        time.sleep(0.2)


def main(address: str, what: str, *arguments: str) -> None:
    ray.init(address=address, log_to_driver=False, namespace="tests")
    if what == "wait":
        _wait(int(arguments[0]))
    elif what == "start":
        config, folder, nodes = arguments
        times = {}
        _wait(int(nodes))
        times["Ray's other nodes"] = time.time()
        deployment = load(config)
        canal.start(deployment, timeout=150)
        times["the deployment"] = time.time()
        options = {"name": "readers", "lifetime": "detached", "num_cpus": 0, "get_if_exists": True}
        there = {"resources": {"readers": 0.001}}
        names = [each.destination for each in deployment.instance]
        readers = ray.remote(Readers).options(**options, **there).remote(names, folder)
        ray.get(readers.ready.remote(), timeout=150)
        times["the readers"] = time.time()
        print(json.dumps(times))
    else:
        names = sorted(each for node in canal.nodes() for each in node["destinations"])
        print(json.dumps(_seen(names)))


if __name__ == "__main__":
    main(*sys.argv[1:])
