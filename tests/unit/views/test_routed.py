"""Messages by the place that they go to, each place's in log order."""

from __future__ import annotations

import itertools
import random

import numpy as np

from ray_canal.views.routed import FlatMessages, by_place


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
