"""The sum of a destination's limits: what it is made of, and how it grows."""

from __future__ import annotations

from typing import Any

from ray_canal.config import InstanceConfig
from ray_canal.limits import Limits, chunks_ahead, chunks_in_flight, limits

MIB = 1 << 20


def config(**given: Any) -> InstanceConfig:
    source = {"address": "a:1"}
    return InstanceConfig.model_validate({"destination": "d", "source": source, **given})


def the(given: InstanceConfig, decoders: int = 0, subscribers: int = 1, logs: int = 1) -> Limits:
    found = limits(given, decoders=decoders, subscribers=subscribers, logs=logs)
    assert found is not None
    return found


def test_objects_are_the_log_what_is_in_flight_and_what_is_read_back() -> None:
    # 128 MiB of log, one chunk more, 5 in flight, 2 of each subscriber.
    assert the(config()).objects == (128 + 24 + 5 * 24 + 2 * 24) * MIB
    assert the(config(), subscribers=3).objects == (128 + 24 + 5 * 24 + 3 * 2 * 24) * MIB
    assert the(config(chunk_bytes=MIB)).objects == (128 + 1 + 5 + 2) * MIB
    # Split, the log's chunks are there raw, too, and each in flight.
    split = the(config(chunk_bytes=MIB), decoders=2)
    assert split.objects == (2 * (128 + 1) + 2 * 6 + 2) * MIB
    small = config(store={"buffer_size": 16384})  # chunks are a quarter of it
    assert the(small).objects == (16 + 4 + 5 * 4 + 2 * 4) * MIB
    assert (chunks_ahead(0), chunks_in_flight(0)) == (2, 5)
    assert (chunks_ahead(4), chunks_in_flight(4)) == (9, 20)


def test_disk_is_what_is_configured_and_two_files() -> None:
    assert the(config()).disk == (4096 + 2 * 64) * MIB
    without = the(config(store={"spill_bytes": 0}))
    assert without.disk == 0
    # No spiller, nothing kept of what is on disk.
    assert the(config()).processes - without.processes > 4096 * MIB // 32


def test_each_log_has_its_own_and_decoders_have_processes() -> None:
    one, two = the(config()), the(config(), logs=2)
    assert two.objects == 2 * one.objects
    assert one.processes < two.processes < 2 * one.processes  # one store actor
    assert the(config(), decoders=4).processes > one.processes + 4 * 128 * MIB
    assert the(config(), subscribers=9).processes > one.processes


def test_a_log_that_counts_entries_has_no_sum() -> None:
    given = config(store={"batch_mode": "ITEMSIZE"})
    assert limits(given, decoders=0, subscribers=1) is None
