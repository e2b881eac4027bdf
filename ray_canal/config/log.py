"""[log]: what the processes of a deployment write of their life."""

from __future__ import annotations

from typing import Literal

from ray_canal.config.section import Section


class LogConfig(Section):
    """The log of every process, on its standard error (`ray logs`). Without this section, Ray's own
    settings count: warnings, as text."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"
