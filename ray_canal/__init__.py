"""ray_canal: MySQL and MariaDB change data capture as an actor system on Ray.

    import ray_canal as canal

    canal.start("canal.toml")
    with canal.connect("orders") as connector:
        connector.subscribe(r"shop\\..*")
        for message in connector:
            for batch in message.batches: ...

The names below are the public API. They are loaded when first used, so that importing ray_canal
starts neither Ray nor a compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_canal import spark as spark
    from ray_canal.client.api import destinations as destinations
    from ray_canal.client.api import nodes as nodes
    from ray_canal.client.api import schema_history as schema_history
    from ray_canal.client.api import serve as serve
    from ray_canal.client.api import server_status as server_status
    from ray_canal.client.api import set_filter as set_filter
    from ray_canal.client.api import set_instance_filter as set_instance_filter
    from ray_canal.client.api import start as start
    from ray_canal.client.api import status as status
    from ray_canal.client.api import stop as stop
    from ray_canal.client.api import stop_serving as stop_serving
    from ray_canal.client.apply import apply as apply
    from ray_canal.client.apply import plan as plan
    from ray_canal.client.connecting import connect as connect
    from ray_canal.client.connecting import connect_async as connect_async
    from ray_canal.client.connector import AsyncConnector as AsyncConnector
    from ray_canal.client.connector import Connector as Connector
    from ray_canal.client.control import subscriber as subscriber
    from ray_canal.client.explain import explain as explain
    from ray_canal.client.message import Message as Message
    from ray_canal.client.subscribers import subscribers as subscribers
    from ray_canal.client.subscribers import unsubscribe as unsubscribe
    from ray_canal.client.succession import leave as leave
    from ray_canal.client.succession import standing as standing
    from ray_canal.config import load as load_config
    from ray_canal.console.actor import serve_console as serve_console
    from ray_canal.console.actor import stop_console as stop_console
    from ray_canal.datasets import changes as changes
    from ray_canal.datasets import read_binlogs as read_binlogs
    from ray_canal.dead_letters import DeadLetters as DeadLetters
    from ray_canal.flight.actor import serve_flight as serve_flight
    from ray_canal.flight.actor import stop_flight as stop_flight
    from ray_canal.model.timeline import row_id as row_id
    from ray_canal.offline import decode_entries as decode_entries
    from ray_canal.offline import decode_files as decode_files
    from ray_canal.sinks.actor import pause_sink as pause_sink
    from ray_canal.sinks.actor import resume_sink as resume_sink
    from ray_canal.sinks.actor import seek_sink as seek_sink
    from ray_canal.sinks.actor import sink_status as sink_status
    from ray_canal.sinks.actor import start_sinks as start_sinks
    from ray_canal.sinks.actor import stop_sink as stop_sink
    from ray_canal.sinks.open import run_sink as run_sink
    from ray_canal.snapshot.read import read_snapshot as read_snapshot
    from ray_canal.views.masking import Keep as Keep

__version__ = "0.1.0"

_WHERE = {
    "apply": "ray_canal.client.apply",
    "plan": "ray_canal.client.apply",
    "start": "ray_canal.client.api",
    "stop": "ray_canal.client.api",
    "destinations": "ray_canal.client.api",
    "nodes": "ray_canal.client.api",
    "serve": "ray_canal.client.api",
    "server_status": "ray_canal.client.api",
    "set_filter": "ray_canal.client.api",
    "set_instance_filter": "ray_canal.client.api",
    "stop_serving": "ray_canal.client.api",
    "status": "ray_canal.client.api",
    "explain": "ray_canal.client.explain",
    "leave": "ray_canal.client.succession",
    "standing": "ray_canal.client.succession",
    "subscriber": "ray_canal.client.control",
    "subscribers": "ray_canal.client.subscribers",
    "unsubscribe": "ray_canal.client.subscribers",
    "connect": "ray_canal.client.connecting",
    "connect_async": "ray_canal.client.connecting",
    "Connector": "ray_canal.client.connector",
    "AsyncConnector": "ray_canal.client.connector",
    "Message": "ray_canal.client.message",
    "DeadLetters": "ray_canal.dead_letters",
    "schema_history": "ray_canal.client.api",
    "serve_console": "ray_canal.console.actor",
    "stop_console": "ray_canal.console.actor",
    "changes": "ray_canal.datasets",
    "read_binlogs": "ray_canal.datasets",
    "serve_flight": "ray_canal.flight.actor",
    "stop_flight": "ray_canal.flight.actor",
    "run_sink": "ray_canal.sinks.open",
    "pause_sink": "ray_canal.sinks.actor",
    "resume_sink": "ray_canal.sinks.actor",
    "seek_sink": "ray_canal.sinks.actor",
    "sink_status": "ray_canal.sinks.actor",
    "start_sinks": "ray_canal.sinks.actor",
    "stop_sink": "ray_canal.sinks.actor",
    "Keep": "ray_canal.views.masking",
    "decode_files": "ray_canal.offline",
    "read_snapshot": "ray_canal.snapshot.read",
    "row_id": "ray_canal.model.timeline",
    "decode_entries": "ray_canal.offline",
}

__all__ = [
    "AsyncConnector",
    "Connector",
    "DeadLetters",
    "Keep",
    "Message",
    "apply",
    "changes",
    "connect",
    "connect_async",
    "decode_entries",
    "decode_files",
    "destinations",
    "explain",
    "leave",
    "load_config",
    "nodes",
    "pause_sink",
    "plan",
    "read_binlogs",
    "read_snapshot",
    "resume_sink",
    "row_id",
    "run_sink",
    "schema_history",
    "seek_sink",
    "serve",
    "serve_console",
    "serve_flight",
    "server_status",
    "set_filter",
    "set_instance_filter",
    "sink_status",
    "spark",
    "standing",
    "start",
    "start_sinks",
    "status",
    "stop",
    "stop_console",
    "stop_flight",
    "stop_serving",
    "stop_sink",
    "subscriber",
    "subscribers",
    "unsubscribe",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name == "spark":
        return importlib.import_module("ray_canal.spark")
    if name == "load_config":
        return importlib.import_module("ray_canal.config").load
    raise AttributeError(f"module 'ray_canal' has no attribute {name!r}")
