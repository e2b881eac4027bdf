"""What processes load whose start is most of a recovery, the one that starts them included; and
what clients load before their first message."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"numba", "llvmlite", "pyarrow", "pandas", "sqlglot", "pymysql", "pyspark"}

MODULES = "destination.destination", "actors.control.controller", "actors.spiller", "client.api"


def loaded_by(statements: str, of: set[str]) -> set[str]:
    code = f"import sys; {statements}; print(*{of!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_only_other_processes_need_is_not_loaded() -> None:
    assert loaded_by("; ".join(f"import ray_canal.{each}" for each in MODULES), HEAVY) == set()


def test_a_client_by_canals_protocol_loads_neither_ray_nor_a_compiler() -> None:
    tcp = "import ray_canal; ray_canal.connect; import ray_canal.client.tcp"
    subscribed = (
        "from types import SimpleNamespace; from ray_canal.client.session import ClientSession; "
        "ClientSession(SimpleNamespace(destination='d'), 1).use({'where': None})"
    )
    assert loaded_by(f"{tcp}; {subscribed}", HEAVY | {"ray", "pydantic"}) == set()


def test_a_client_in_the_cluster_loads_neither_sqls_grammar_nor_pandas() -> None:
    clients = "import ray_canal.client.transport, ray_canal.client.flight"
    read = "import ray_canal.views.arrow, ray_canal.views.entries, ray_canal.views.transactions"
    assert loaded_by(f"{clients}; {read}", HEAVY) == {"numba", "llvmlite", "pyarrow"}


def test_batches_are_made_without_pandas() -> None:
    files = "import ray_canal.demo, ray_canal.offline; files = ray_canal.demo.binlog_files()"
    read = "assert sum(len(some) for some in ray_canal.offline.decode_batches(files))"
    assert loaded_by(f"{files}; {read}", {"pandas"}) == set()


def test_the_default_namespace_is_the_same_one() -> None:
    from ray_canal.actors import registry
    from ray_canal.client import connecting

    assert connecting.NAMESPACE == registry.NAMESPACE
