"""Options of `readStream.format("ray_canal")`, as Spark gives them: text, names in lower case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from ray_canal.errors import ConfigError
from ray_canal.spark.frames import Statements

T = TypeVar("T", bound=str)

_BYTES = re.compile(r"(\d+)([kmg]?)b?\Z", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_NAMES = {
    "destination": "destination",
    "table": "table",
    "client_id": "client_id",
    "clientid": "client_id",
    "batch_size": "batch_size",
    "start": "start",
    "maxbytespertrigger": "maxBytesPerTrigger",
    "schematimeout": "schemaTimeout",
    "statements": "statements",
    "partitions": "partitions",
    "images": "images",
}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of a streaming query."""

    destination: str
    table: str
    client_id: int
    batch_size: int = 16384
    bytes_max: int = 128 << 20
    schema_timeout_s: float = 60.0
    start: Literal["head", "tail"] | None = None
    statements: Statements = "error"
    partitions: int = 0
    images: Literal["whole", "partial"] = "whole"

    @property
    def reader(self) -> tuple[str, int]:
        """Return the destination and the client id whose cursor the stream moves."""
        return self.destination, self.client_id

    @classmethod
    def of(cls, given: Mapping[str, str]) -> StreamOptions:
        """Raises ConfigError: an option is missing, not known, or has a value that it cannot."""
        options: dict[str, str] = {}
        for name, value in given.items():
            if name not in _NAMES:
                raise ConfigError(
                    f"ray_canal has no option {name}; there are {', '.join(sorted(_SHOWN))}"
                )
            options[_NAMES[name]] = value
        for name in ("destination", "table", "client_id"):
            if name not in options:
                raise ConfigError(f'give .option("{name}", …): {_WHY[name]}')
        start, statements = options.get("start"), options.get("statements", "error")
        return cls(
            options["destination"],
            table_of(options["table"]),
            number_option("client_id", options["client_id"]),
            number_option("batch_size", options.get("batch_size", "16384")),
            bytes_option("maxBytesPerTrigger", options.get("maxBytesPerTrigger", "128m")),
            float(number_option("schemaTimeout", options.get("schemaTimeout", "60"))),
            None if start is None else _start(start),
            statements_of(statements),
            number_option("partitions", options.get("partitions", "0")),
            _one_of(("whole", "partial"), "images", options.get("images", "whole")),
        )


_SHOWN = set(_NAMES.values())
_WHY = {
    "destination": "the destination's name",
    "table": "one table, as schema.table",
    "client_id": "the subscriber whose cursor goes with the query's checkpoint",
}


def table_of(value: str) -> str:
    """Return a table's name. Raises ConfigError: it is no schema.table."""
    if value.count(".") != 1 or not all(value.split(".")):
        raise ConfigError(f"option table is {value!r}: give one table, as schema.table")
    return value


def number_option(name: str, value: str) -> int:
    """Return an option's number. Raises ConfigError."""
    if not value.isdigit():
        raise ConfigError(f"option {name} is {value!r}: give a number")
    return int(value)


def bytes_option(name: str, value: str) -> int:
    """Return an option's bytes: a number, with k, m or g behind it. Raises ConfigError."""
    found = _BYTES.match(value.strip())
    if found is None:
        raise ConfigError(f"option {name} is {value!r}: give bytes, such as 64m")
    return int(found[1]) * _UNITS[found[2].lower()]


def _start(value: str) -> Literal["head", "tail"]:
    return _one_of(("head", "tail"), "start", value)


def statements_of(value: str) -> Statements:
    """Return what happens to statements that change rows. Raises ConfigError."""
    return _one_of(("error", "ignore"), "statements", value)


def _one_of(allowed: tuple[T, T], name: str, value: str) -> T:
    for each in allowed:
        if value == each:
            return each
    raise ConfigError(f"option {name} is {value!r}: {' or '.join(allowed)}")
