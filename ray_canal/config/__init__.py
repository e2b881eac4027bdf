"""The configuration of a deployment: one TOML file, typed, unknown keys refused.

`docs/reference/canal.toml` shows every key with its default; a test keeps the two in step. Secrets
may be given as `env:NAME` or `file:PATH` and are read when used, never stored in a status or a log.
"""

from __future__ import annotations

from ray_canal.config.console import ConsoleConfig as ConsoleConfig
from ray_canal.config.deployment import CanalConfig as CanalConfig
from ray_canal.config.deployment import InstanceConfig as InstanceConfig
from ray_canal.config.deployment import RayConfig as RayConfig
from ray_canal.config.filters import FilterConfig as FilterConfig
from ray_canal.config.flight import FlightConfig as FlightConfig
from ray_canal.config.load import config_of as config_of
from ray_canal.config.load import load as load
from ray_canal.config.load import load_text as load_text
from ray_canal.config.secret import secret as secret
from ray_canal.config.section import TlsConfig as TlsConfig
from ray_canal.config.server import DoorConfig as DoorConfig
from ray_canal.config.server import Right as Right
from ray_canal.config.server import ServerConfig as ServerConfig
from ray_canal.config.server import ServerTlsConfig as ServerTlsConfig
from ray_canal.config.server import UserConfig as UserConfig
from ray_canal.config.sink import MirrorConfig as MirrorConfig
from ray_canal.config.sink import SinkConfig as SinkConfig
from ray_canal.config.snapshot import SnapshotConfig as SnapshotConfig
from ray_canal.config.source import SourceConfig as SourceConfig
from ray_canal.config.store import MetaConfig as MetaConfig
from ray_canal.config.store import StoreConfig as StoreConfig
from ray_canal.config.store import TsdbConfig as TsdbConfig
