"""Passwords that a configuration has in clear text, kept out of what Ray stores.

What a cluster keeps of a configuration (its key-value store, the arguments that actors are made
with) has `kept:NAME` in their place. The password itself lies in a file that its owner alone may
read, on the head node, where stores run; other processes are told it in memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ray_canal.config.section import REFERENCES, HiddenText, IsSecret
from ray_canal.errors import ConfigError
from ray_canal.private_folder import private_folder

SCHEME = "kept"
_NAME = re.compile(r"[0-9a-f]{32}")
_NAMES_A_SECRET = re.compile(
    r"(?i)passw|secret|token|credential|(access|account|private|sas)[-_.]?key|key\.pem|jaas"
    r"|connection[-_.]?string|authorization"
)
_HAS_A_SECRET = re.compile(r"://[^/@\s:]*:[^/@\s]+@")
"""An address with a password in it, as of a catalog in a database."""
_FOLDER = ".ray_canal-secrets"
FORGOTTEN_S = 7 * 86400.0

_told: dict[str, str] = {}
S = TypeVar("S", bound=BaseModel)


def remember(told: dict[str, str]) -> None:
    """Secrets by reference, for this process."""
    _told.update(told)


def read(reference: str) -> str:
    """Return the secret that `kept:NAME` refers to. Raises ConfigError."""
    if reference in _told:
        return _told[reference]
    path = _folder() / _name_in(reference)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"a password of the configuration is not kept on this machine any more ({path}: "
            f"{error.strerror}); start the destination again, or give passwords as env:NAME or "
            "file:PATH"
        ) from None


def is_known(reference: str) -> bool:
    """Return whether `read` finds the secret behind `kept:NAME` on this machine."""
    return reference in _told or (_folder() / _name_in(reference)).exists()


def keep(text: str) -> str:
    """Write a secret; its reference."""
    name = secrets.token_hex(16)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    with open(os.open(_folder() / name, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return f"{SCHEME}:{name}"


def drop(references: Iterable[str]) -> None:
    """Forget what nobody refers to any more."""
    for reference in references:
        with contextlib.suppress(OSError, ConfigError):
            (_folder() / _name_in(reference)).unlink()


def touch(references: Iterable[str]) -> None:
    """Note that secrets are still needed; see `sweep`."""
    for reference in references:
        with contextlib.suppress(OSError, ConfigError):
            os.utime(_folder() / _name_in(reference))


def sweep() -> None:
    """Remove what was left by clusters that ended without a stop: not touched for a week."""
    with contextlib.suppress(OSError):
        for path in _folder().iterdir():
            if _NAME.fullmatch(path.name) and time.time() - path.stat().st_mtime > FORGOTTEN_S:
                path.unlink(missing_ok=True)


def with_references(section: S, keep: Callable[[str], str] = keep) -> S:
    """Return a section, and those in it, with a reference in place of each secret in clear text."""

    def change(value: str) -> str:
        return value if value.partition(":")[0] in REFERENCES else keep(value)

    return _replaced(section, change)


def references(section: BaseModel) -> list[str]:
    """The `kept:` references in a section."""
    return [value for value in _secrets(section) if value.startswith(f"{SCHEME}:")]


def handed_over(section: S) -> tuple[S, dict[str, str]]:
    """Return a section with references in place of its secrets, and the secrets by reference, which
    another process must be told (`remember`) to use it. Raises ConfigError: one is not kept any
    more."""
    told: dict[str, str] = {}

    def tell(value: str) -> str:
        reference = f"{SCHEME}:{secrets.token_hex(16)}"
        told[reference] = value
        return reference

    given = with_references(section, tell)
    for reference in references(given):
        if reference not in told:
            told[reference] = read(reference)
    return given, told


def revealed(section: S) -> S:
    """A section with the secrets that are kept here in clear text, to compare it."""

    def open_(value: str) -> str:
        with contextlib.suppress(ConfigError):
            return read(value) if value.startswith(f"{SCHEME}:") else value
        return value

    return _replaced(section, open_)


def clear_secrets(section: BaseModel, path: str = "") -> list[str]:
    """Return the keys of secrets in clear text; in a table of texts, those that are named so, and
    addresses with a password.

    A default (RabbitMQ's "guest") is no secret.
    """
    found = []
    for name, info in type(section).model_fields.items():
        value, key = getattr(section, name), f"{path}{name}"
        texts = {key: value} if _is_secret(info.metadata) else {}
        if isinstance(value, dict):
            texts = {f"{key}.{n}": text for n, text in value.items() if _is_one(n, text)}
        for each, text in texts.items():
            refers = str.__str__(text).partition(":")[0] in REFERENCES
            if text and text != info.default and not refers:
                found.append(each)
        if isinstance(value, BaseModel):
            found += clear_secrets(value, f"{key}.")
    return found


def _is_one(name: str, text: str) -> bool:
    return bool(_NAMES_A_SECRET.search(name) or _HAS_A_SECRET.search(str.__str__(text)))


def _secrets(section: BaseModel) -> Iterator[str]:
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, str) and value and _is_secret(info.metadata):
            yield str.__str__(value)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, BaseModel):
                yield from _secrets(part)


def _replaced(section: S, change: Callable[[str], str]) -> S:
    changed: dict[str, object] = {}
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, str) and value and _is_secret(info.metadata):
            changed[name] = HiddenText(change(str.__str__(value)))
        elif isinstance(value, BaseModel):
            changed[name] = _replaced(value, change)
        elif isinstance(value, tuple) and any(isinstance(part, BaseModel) for part in value):
            changed[name] = tuple(_replaced(part, change) for part in value)
    changed = {name: value for name, value in changed.items() if value != getattr(section, name)}
    return section.model_copy(update=changed) if changed else section


def _is_secret(marks: Iterable[object]) -> bool:
    return any(isinstance(mark, IsSecret) for mark in marks)


def _name_in(reference: str) -> str:
    name = reference.partition(":")[2]
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{reference!r} is no reference to a secret: env:NAME or file:PATH")
    return name


def _folder() -> Path:
    """Ours alone: in the home directory, else (no home, or none that is writable) among temporary
    files. Raises ConfigError: there is none that nobody else could have made."""
    told = []
    for base in (Path.home, lambda: Path(tempfile.gettempdir())):
        with contextlib.suppress(RuntimeError):
            try:
                return private_folder(base(), _FOLDER)
            except OSError as error:
                told.append(str(error))
    raise ConfigError(
        f"there is no place to keep a password ({'; '.join(told)}): give passwords as env:NAME or "
        "file:PATH"
    )
