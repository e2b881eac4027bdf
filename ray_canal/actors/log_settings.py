"""A deployment's [log], kept in the cluster: every process of ours takes it up when it begins."""

from __future__ import annotations

from ray_canal.actors.ray_internals import kv_delete, kv_get, kv_put
from ray_canal.config.changes import parsed
from ray_canal.config.log import LogConfig
from ray_canal.logs import write_to_stderr

_PREFIX = "ray_canal:log:"


def keep_log_settings(namespace: str, config: LogConfig | None) -> None:
    """Keep them for the processes of a namespace; None: there are none any more."""
    if config is None:
        kv_delete(_PREFIX + namespace)
    else:
        kv_put(_PREFIX + namespace, config.model_dump_json())


def take_up_log_settings(namespace: str) -> None:
    """Log as the deployment of this namespace says, if it does."""
    kept = kv_get(_PREFIX + namespace)
    config = None if kept is None else parsed(LogConfig, kept)
    if config is not None:
        write_to_stderr(config.format, config.level)
