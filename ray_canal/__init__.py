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

_NAMES = {
    # module: what it has of the public API, as the imports above
    "client.api": "destinations nodes schema_history serve server_status set_filter "
    "set_instance_filter start status stop stop_serving",
    "client.apply": "apply plan",
    "client.connecting": "connect connect_async",
    "client.connector": "AsyncConnector Connector",
    "client.control": "subscriber",
    "client.explain": "explain",
    "client.message": "Message",
    "client.subscribers": "subscribers unsubscribe",
    "client.succession": "leave standing",
    "console.actor": "serve_console stop_console",
    "datasets": "changes read_binlogs",
    "dead_letters": "DeadLetters",
    "flight.actor": "serve_flight stop_flight",
    "model.timeline": "row_id",
    "offline": "decode_entries decode_files",
    "sinks.actor": "pause_sink resume_sink seek_sink sink_status start_sinks stop_sink",
    "sinks.open": "run_sink",
    "snapshot.read": "read_snapshot",
    "views.masking": "Keep",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["load_config", "spark", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "spark":
        return importlib.import_module("ray_canal.spark")
    if name == "load_config":
        return importlib.import_module("ray_canal.config").load
    if name in _MODULES:
        return getattr(importlib.import_module(f"ray_canal.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'ray_canal' has no attribute {name!r}")
