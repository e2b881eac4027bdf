"""Canal's properties files: read as Java reads them, with Spring's `${name:default}` put in.

The syntax (ISO 8859-1, `\\uXXXX`, continued lines) is the library's business; here is which file is
looked at, what overrides what, and which value came from outside of the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties

from ray_canal.errors import ConfigError

_PLACEHOLDER = re.compile(r"\$\{([^${}:]+)(?::([^${}]*))?\}")
_DEPTH_MAX = 32
INSTANCE_FILE = "instance.properties"


def read(path: Path) -> dict[str, str]:
    """Keys and values, blanks around values cut off. Raises ConfigError: no such file, or not
    properties."""
    try:
        with path.open("rb") as file:
            found: dict[str, str] = javaproperties.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a properties file: {error}") from error
    return {key: value.strip() for key, value in found.items()}


@dataclass(frozen=True)
class Properties:
    """The keys of one scope. `values` are as they stand in the files, before anything is put in;
    `environment` is asked for names that no file has."""

    values: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def get(self, key: str, default: str = "") -> str:
        """A key's value with its placeholders resolved. Raises ConfigError: one cannot be."""
        return self._resolved(key, self.values[key], 0) if key in self.values else default

    def variable(self, key: str) -> str | None:
        """The environment variable that a value is, whole and nothing else; None: it is no such
        value."""
        match = _PLACEHOLDER.fullmatch(self.values.get(key, ""))
        return None if match is None or match[1] in self.values else match[1]

    def _resolved(self, key: str, text: str, depth: int) -> str:
        while (match := _PLACEHOLDER.search(text)) is not None:
            if depth > _DEPTH_MAX:
                raise ConfigError(f"{key}: ${{{match[1]}}} leads back to itself")
            name, default = match[1], match[2]
            inner = self.values.get(name, self.environment.get(name, default))
            if inner is None:
                raise ConfigError(
                    f"{key} names ${{{name}}}, which is neither a key of these files nor an "
                    f"environment variable; give it with --set {name}=VALUE"
                )
            depth += 1
            text = text[: match.start()] + inner + text[match.end() :]
        return text


def flag(properties: Properties, key: str, default: str = "false") -> bool:
    """Return a key's value, which is `default` where it is left out. Raises ConfigError: it is
    neither true nor false."""
    text = (properties.get(key) or default).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key} = {text!r}: expected true or false")
    return text == "true"


def destination_of(path: Path) -> str:
    """The destination whose file this is: Canal takes the folder's name (conf/NAME/…)."""
    return path.resolve().parent.name if path.name == INSTANCE_FILE else path.stem


def expanded(expression: str) -> list[str]:
    """The names of canal.destinations.expr: `p{1-3}` is p1, p2, p3."""
    match = re.fullmatch(r"([^{}]*)\{(\d+)-(\d+)\}([^{}]*)", expression)
    if match is None:
        raise ConfigError(f"canal.destinations.expr {expression!r}: expected a form like p{{1-5}}")
    first, last = int(match[2]), int(match[3])
    return [f"{match[1]}{number}{match[4]}" for number in range(first, last + 1)]


def instance_files(canal: Path, properties: Properties) -> dict[str, Path]:
    """The instances' files next to canal.properties, by destination, as Canal would find them.

    Raises ConfigError: a destination that canal.destinations names has no file.
    """
    folder = canal.resolve().parent
    names = [n.strip() for n in properties.get("canal.destinations").split(",") if n.strip()]
    expression = properties.get("canal.destinations.expr")
    if expression:
        names += [name for name in expanded(expression) if name not in names]
    missing = [name for name in names if not (folder / name / INSTANCE_FILE).exists()]
    if missing:
        raise ConfigError(
            f"canal.destinations names {', '.join(missing)}, but there is no "
            f"{folder / missing[0] / INSTANCE_FILE}; name the instances' files on the command line"
        )
    if properties.get("canal.auto.scan", "true").lower() == "true":
        found = sorted(folder.glob(f"*/{INSTANCE_FILE}"))
        names += [path.parent.name for path in found if path.parent.name not in names]
    return {name: folder / name / INSTANCE_FILE for name in names}
