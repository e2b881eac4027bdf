"""Options of readStream."""

from __future__ import annotations

import pytest

from ray_canal.errors import ConfigError
from ray_canal.spark.stream_options import StreamOptions

NEEDED = {"destination": "shop", "table": "shop.items", "client_id": "7"}


def test_needed_ones_and_defaults() -> None:
    options = StreamOptions.of(NEEDED)
    assert options.reader == ("shop", 7)
    assert options.bytes_max == 128 << 20
    assert options.start is None


def test_all_of_them() -> None:
    options = StreamOptions.of(
        {**NEEDED, "maxbytespertrigger": "64k", "schematimeout": "5", "start": "tail",
         "statements": "ignore", "batch_size": "100", "images": "partial"}
    )  # fmt: skip
    assert (options.bytes_max, options.schema_timeout_s) == (64 << 10, 5.0)
    assert (options.start, options.statements, options.batch_size) == ("tail", "ignore", 100)
    assert options.images == "partial"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"table": "items"}, "give one table, as schema.table"),
        ({"client_id": "me"}, "client_id is 'me': give a number"),
        ({"maxbytespertrigger": "much"}, "give bytes, such as 64m"),
        ({"start": "now"}, "head or tail"),
        ({"statements": "no"}, "error or ignore"),
        ({"images": "all"}, "whole or partial"),
        ({"tabel": "x"}, "no option tabel; there are batch_size"),
    ],
)
def test_wrong_ones(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        StreamOptions.of({**NEEDED, **given})


@pytest.mark.parametrize("name", NEEDED)
def test_missing_ones(name: str) -> None:
    with pytest.raises(ConfigError, match=f'give .option."{name}"'):
        StreamOptions.of({key: value for key, value in NEEDED.items() if key != name})
