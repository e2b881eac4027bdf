"""Options of `spark.read.format("ray_canal")`, as Spark gives them: text, names in lower case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ray_canal.errors import ConfigError
from ray_canal.spark.frames import Statements
from ray_canal.spark.stream_options import bytes_option, number_option, statements_of, table_of

_FILES = {"path", "paths", "part_bytes", "partbytes", "schema_sql", "lower_case_table_names"}
_LOG = {"destination", "batch_size", "partitions"}
_BOTH = {"table", "statements"}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Source of a query: binlog files (`paths`), or what the log of a destination holds."""

    table: str
    paths: tuple[str, ...] = ()
    destination: str = ""
    statements: Statements = "error"
    part_bytes: int = 16 << 20
    batch_size: int = 16384
    schema_sql: str | None = None
    lower_case_table_names: int | None = None
    partitions: int = 0

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Raises ConfigError: an option is missing, not known, or has a value that it cannot."""
        is_log = "destination" in given
        known = _BOTH | (_LOG if is_log else _FILES)
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"spark.read of {'a destination' if is_log else 'files'} has no option {name}; "
                    f"there are {', '.join(sorted(known - {'paths', 'partbytes'}))}"
                )
        if "table" not in given:
            raise ConfigError('give .option("table", "schema.table"): a DataFrame has one table')
        paths = json.loads(given.get("paths", "[]"))
        paths += [given["path"]] if "path" in given else []
        if not is_log and not paths:
            raise ConfigError('give .load("FILE or DIRECTORY") or .option("destination", "NAME")')
        part_bytes = given.get("partbytes", given.get("part_bytes", "16m"))
        letters = given.get("lower_case_table_names")
        return cls(
            table_of(given["table"]),
            tuple(paths),
            given.get("destination", ""),
            statements_of(given.get("statements", "error")),
            bytes_option("part_bytes", part_bytes),
            number_option("batch_size", given.get("batch_size", "16384")),
            given.get("schema_sql"),
            None if letters is None else number_option("lower_case_table_names", letters),
            number_option("partitions", given.get("partitions", "0")),
        )
