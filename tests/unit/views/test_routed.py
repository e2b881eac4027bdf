"""Messages by the place that they go to, each place's in log order."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from ray_canal.errors import UnsupportedEvent
from ray_canal.offline import decode_chunks
from ray_canal.views.flat import FlatOptions, flat_messages
from ray_canal.views.routed import FlatMessages, by_place
from ray_canal.views.routing import Routing
from tests.golden import GOLDEN


def test_moves_of_rows_that_lack_columns_are_not_guessed() -> None:
    """The log has UPDATEs with binlog_row_image=MINIMAL, whose after images lack the key."""
    chunks = decode_chunks([GOLDEN / "mysql97" / "mysql_dml.binlog"])
    chunk = next(each for _, each in chunks if (each.events["present"] >= 0).any())
    count = chunk.layout.event_count
    rule = Routing(topic="t", partitions=3, partition_hash=r".*\..*:$pk$")
    assert len(flat_messages(chunk, 0, count, None, FlatOptions(id=1, routing=rule)))
    split = replace(rule, key_changes="split")
    with pytest.raises(UnsupportedEvent, match=r"UPDATE of g_dml\.t_dml at .* lacks columns"):
        flat_messages(chunk, 0, count, None, FlatOptions(id=1, routing=split))


def messages(topics: list[int], partitions: list[int]) -> FlatMessages:
    count = len(topics)
    numbers = np.arange(count, dtype=np.int32)
    return FlatMessages(
        np.frombuffer(b"ab" * count, np.uint8),
        np.arange(count + 1) * 2,
        np.array(topics, np.int32),
        ("a", "b", "c"),
        np.array(partitions, np.int32),
        numbers,
        numbers,
    )


def test_each_message_is_in_one_place_and_in_order_there() -> None:
    rng = random.Random(3)
    for count in (0, 1, 2, 300):
        found = messages(rng.choices(range(3), k=count), rng.choices(range(-1, 5), k=count))
        seen: dict[tuple[int, int], list[int]] = {}
        for topic, partition, numbers in by_place(found):
            assert (topic, partition) not in seen
            seen[topic, partition] = numbers.tolist()
            assert (found.topics[numbers] == topic).all()
            assert (found.partitions[numbers] == partition).all()
            assert sorted(numbers) == numbers.tolist()
        assert sorted(itertools.chain(*seen.values())) == list(range(count))
    assert bytes(messages([0, 1], [0, 0])[1]) == b"ab"
