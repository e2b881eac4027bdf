"""A Galera cluster of MariaDBs on loopback: each node has the others' transactions in its own log.

Nodes begin as copies of the first one, and get what came since from the others (an incremental
state transfer, IST). The server calls a script for that, too, which comes with packages that are
not installed here; `_SCRIPT` says where the copy stands, as they do, and copies nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pymysql

from tests.processes import wait_for
from tests.servers.fetch import fetch_tree
from tests.servers.run import Server, free_port, start

_SCRIPT = """#!/bin/bash
while [ $# -gt 0 ]; do
  case "$1" in
    --role) role=$2; shift 2;;
    --address) address=$2; shift 2;;
    --gtid) gtid=$2; shift 2;;
    --gtid-domain-id) domain=$2; shift 2;;
    --bypass) bypass=1; shift;;
    --parent) parent=$2; shift 2;;
    *) shift;;
  esac
done
if [ "$role" = joiner ]; then
  told=$(dirname "$0")/told.$parent
  rm -f "$told"
  echo "ready 127.0.0.1:1/$told"
  while [ ! -s "$told" ]; do sleep 0.05; done
  cat "$told"
elif [ -z "$bypass" ]; then
  echo "error: a whole copy is wanted"
  exit 1
else
  told=/${address#*//}
  echo continue
  echo "$gtid $domain" > "$told.new"
  mv "$told.new" "$told"
  echo "done $gtid"
fi
"""


def _is_synced(node: Server) -> bool:
    try:
        found = dict(node.execute("SHOW GLOBAL STATUS LIKE 'wsrep_%'"))
    except pymysql.err.MySQLError:
        return False
    return (found["wsrep_ready"], found["wsrep_local_state_comment"]) == ("ON", "Synced")


def wait_until_synced(node: Server) -> None:
    """Return when a node is one of its cluster, with all that the others have."""
    wait_for(lambda: _is_synced(node), 60.0, "the node is synced")


@contextlib.contextmanager
def galera(folder: Path, count: int = 3, **options: str) -> Iterator[list[Server]]:
    """`count` nodes that write into each other. `options`: of every node, as `gtid_domain_id`."""
    library = fetch_tree("galera") / "root" / "usr" / "lib" / "galera" / "libgalera_smm.so"
    programs, ports = folder / "bin", [free_port() for _ in range(count)]
    programs.mkdir(parents=True)
    (programs / "wsrep_sst_told").write_text(_SCRIPT, encoding="ascii")
    (programs / "wsrep_sst_told").chmod(0o755)
    common = {
        "wsrep-on": "ON",
        "wsrep-provider": str(library),
        "wsrep-cluster-name": "galera",
        "wsrep-node-address": "127.0.0.1",
        "wsrep-sst-method": "told",
        "innodb-autoinc-lock-mode": "2",
        "log-slave-updates": "ON",
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    limits = "evs.keepalive_period=PT0.5S;evs.inactive_check_period=PT0.5S;evs.suspect_timeout=PT2S"

    def own(number: int, address: str) -> dict[str, str | None]:
        listens = f"gmcast.listen_addr=tcp://127.0.0.1:{ports[number]}"
        takes = f"ist.recv_addr=127.0.0.1:{free_port()}"
        return {
            **common,
            "wsrep-node-name": f"node{number}",
            "wsrep-cluster-address": f"gcomm://{address}",
            "wsrep-provider-options": f"{listens};{takes};{limits};evs.inactive_timeout=PT4S;"
            "gcache.size=32M;pc.recovery=false",
        }

    path = f"{os.environ['PATH']}:{programs}"
    with mock.patch.dict(os.environ, PATH=path), contextlib.ExitStack() as stack:
        first = stack.enter_context(start("mariadb", folder / "0", own(0, "")))
        wait_until_synced(first)
        first.stop()
        nodes = [first]
        for number in range(1, count):
            place = folder / str(number)
            (place / "tmp").mkdir(parents=True)
            copy = ["cp", "-a", "--sparse=always", str(first.datadir), str(place / "data")]
            subprocess.run(copy, check=True)
            for pattern in ("galera.cache", "gvwstate.dat", "mysql-bin.*"):
                for file in (place / "data").glob(pattern):
                    file.unlink()
            address = f"127.0.0.1:{ports[0]}"
            node = Server("mariadb", place, own(number, address), build=first.build)
            nodes.append(node)
        for node in nodes:
            stack.callback(node.kill)
            node.start()
            wait_until_synced(node)
        yield nodes
