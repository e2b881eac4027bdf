"""Secrets behind `env:NAME` and `file:PATH`, read when they are used."""

from __future__ import annotations

import os
from pathlib import Path

from ray_canal.errors import ConfigError


def secret(value: str) -> str:
    """The secret behind `env:NAME` or `file:PATH`, or the value itself.

    Raises ConfigError: the variable is not set, the file cannot be read. The secret is in no
    message.
    """
    scheme, _, rest = value.partition(":")
    if scheme == "env":
        if rest not in os.environ:
            raise ConfigError(f"environment variable {rest} (named by {value!r}) is not set")
        return os.environ[rest]
    if scheme == "file":
        try:
            return Path(rest).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigError(f"cannot read secret file {rest}: {error.strerror}") from error
    return value
