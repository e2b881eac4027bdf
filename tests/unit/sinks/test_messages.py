"""Messages of a queue that are made of bytes, and the names by which a reader knows them again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import EVENT, ChunkLayout, DecodedChunk
from ray_canal.config.queue import MessageConfig, MessageFormat, RoutingConfig
from ray_canal.sinks.messages import MessageMaker, joined
from ray_canal.views.routed import by_place


def test_bytes_become_messages_of_one_place() -> None:
    found = joined([b"ab", b"", b"c"], topic="t", partition=3, entries=[0, 4, 4], rows=[1, 2, 1])
    assert [bytes(found[i]) for i in range(len(found))] == [b"ab", b"", b"c"]
    [(topic, partition, numbers)] = by_place(found)
    assert (found.topic_names[topic], partition, numbers.tolist()) == ("t", 3, [0, 1, 2])


def test_ids_name_the_entry_and_rise_within_its_event() -> None:
    events = np.zeros(4, EVENT)
    events["position"], events["inner"] = (100, 100, 250, 250), (0, 0, 0, 60)
    layout = ChunkLayout("b.000007", 0, len(events), 0, 0, 0, 0, ())
    chunk = DecodedChunk(layout, events.view(np.uint8))
    changes: Any = SimpleNamespace(chunk=chunk, message=SimpleNamespace(timeline=2))
    found = joined([b"x"] * 4, topic="t", partition=5, entries=[0, 1, 2, 3], rows=[1] * 4)
    maker = MessageMaker(MessageConfig(), RoutingConfig())
    assert list(maker.ids(changes, found)) == [
        "2:b.000007:100:0:0:5",
        "2:b.000007:100:0:1:5",
        "2:b.000007:250:0:0:5",
        "2:b.000007:250:60:0:5",
    ]
    # A row that moves is two messages, so an entry may have several in one partition.
    found = joined([b"x"] * 4, topic="t", partition=5, entries=[0, 0, 0, 1], rows=[1] * 4)
    maker = MessageMaker(MessageConfig(), RoutingConfig(key_changes="split"))
    assert list(maker.ids(changes, found)) == [
        "2:b.000007:100:0:0:5",
        "2:b.000007:100:0:0:5.1",
        "2:b.000007:100:0:0:5.2",
        "2:b.000007:100:0:1:5",
    ]


@pytest.mark.parametrize(
    ("name", "routing", "message", "sent_to"),
    [
        ("shop.canal", {}, "flat", "shop.canal"),
        ("shop.canal", {"dynamic_topic": "t.a:shop.item"}, "flat", "shop_canal"),
        ("t.a", {"dynamic_topic": "t.a:shop.item"}, "protobuf", "t_a"),
        ("shop.canal", {"dynamic_topic": "t.a:shop.item"}, "arrow", "shop.canal"),
        ("shop.canal.shop.item", {"dynamic_topic": "t.a:shop.item"}, "debezium",
         "shop.canal.shop.item"),
    ],
)  # fmt: skip
def test_dots_of_topics_are_what_canals_producers_make_of_them(
    name: str, routing: dict[str, str], message: MessageFormat, sent_to: str
) -> None:
    """With canal.mq.dynamicTopic they put _ for the dots of every topic, canal.mq.topic's, too."""
    maker = MessageMaker(
        MessageConfig(format=message), RoutingConfig(topic="shop.canal", **routing)
    )
    assert maker.topic(name) == sent_to


def test_topics_of_tables_are_those_that_their_messages_go_to() -> None:
    maker = MessageMaker(MessageConfig(format="debezium"), RoutingConfig(topic="p"))
    assert maker.topics([("shop", "a b$é")]) == {"p.shop.a_b__": 1}
