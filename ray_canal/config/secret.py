"""Secrets named by `env:NAME`, `file:PATH` and our own `kept:NAME`, read when they are used."""

from __future__ import annotations

import os
from pathlib import Path

from ray_canal.config import kept_secrets
from ray_canal.errors import ConfigError


def secret(value: str) -> str:
    """Return the secret that `env:NAME`, `file:PATH` or `kept:NAME` names (kept_secrets.py), or
    the value itself.

    Raises ConfigError: the variable is not set, the file cannot be read, or there is nothing in it.
    The secret is in no message.
    """
    value = str.__str__(value)
    scheme, _, rest = value.partition(":")
    if scheme == "env":
        if rest not in os.environ:
            raise ConfigError(f"environment variable {rest} (named by {value!r}) is not set")
        found = os.environ[rest]
    elif scheme == "file":
        try:
            found = Path(rest).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigError(f"cannot read secret file {rest}: {error.strerror}") from error
        except UnicodeDecodeError:  # its text has a byte of the secret
            raise ConfigError(f"secret file {rest} is not UTF-8") from None
    elif scheme == kept_secrets.SCHEME:
        found = kept_secrets.read(value)
    else:
        return value
    if not found:
        raise ConfigError(f"the secret {value!r} is empty; for no password, leave its key out")
    return found
