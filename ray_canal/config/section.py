"""What all sections of a configuration share: unknown keys refused, addresses, clear errors."""

from __future__ import annotations

import difflib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ray_canal.errors import ConfigError


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsConfig(Section):
    """TLS to a server. `mode` has MySQL's meanings of --ssl-mode."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca: str = ""
    cert: str = ""
    key: str = ""


def host_port_of(address: str, default_port: int, key: str) -> tuple[str, int]:
    """(host, port) of `host:port`. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    if not host:
        return address.strip("[]"), default_port
    if not port.isdigit():
        raise ConfigError(f"{key} {address!r}: expected host:port")
    return host.strip("[]"), int(port)


def explained(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong, by key, with the nearest valid key of `model` for an unknown one."""
    return "; ".join(
        _explain(e, model) for e in error.errors(include_input=False, include_url=False)
    )


def _explain(problem: Any, model: type[BaseModel]) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        near = difflib.get_close_matches(key, _all_keys(model), n=1)
        return f"unknown key {where!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    return f"{where or 'configuration'}: {problem['msg'].removeprefix('Value error, ')}"


def _all_keys(section: type[BaseModel]) -> list[str]:
    keys: list[str] = []
    for name, info in section.model_fields.items():
        keys.append(name)
        for candidate in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                keys.extend(_all_keys(candidate))
    return keys
