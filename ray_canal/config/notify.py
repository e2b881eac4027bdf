"""[notify]: telling people what happens to destinations."""

from __future__ import annotations

from pydantic import Field

from ray_canal.config.section import SecretReference, Section


class NotifyConfig(Section):
    """Log lines about state changes and thresholds, and the same to a webhook where `url` is given.
    A threshold of 0 is never reached. Without this section nobody watches."""

    url: SecretReference = ""
    secret: SecretReference = ""
    every_s: float = Field(5.0, gt=0)
    lag_seconds: float = Field(600.0, ge=0)
    purge_seconds: float = Field(7200.0, ge=0)
    full_seconds: float = Field(60.0, ge=0)
    timeout_s: float = Field(10.0, gt=0)
    retry_s: float = Field(3600.0, ge=0)
