"""A warning before the server purges what is needed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ray_canal.destination.status.purge_watch import watch_purge
from ray_canal.source.port import SourceStatus
from ray_canal.source.retention import PurgeDistance


def test_a_purge_to_come_is_warned_of_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    said = [None, "soon", "soon", "", "again", "again"]
    answers: list[Any] = [
        None if text is None else SourceStatus("b.1", 4, purge=PurgeDistance(warning=text))
        for text in said
    ]

    async def status() -> Any:
        return answers.pop(0)

    async def watched() -> None:
        watch = asyncio.create_task(watch_purge("orders", status, 0.0))
        while answers:
            await asyncio.sleep(0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    with caplog.at_level(logging.WARNING):
        asyncio.run(watched())
    assert [record.getMessage() for record in caplog.records] == [
        "destination orders: soon",
        "destination orders: again",
    ]


def test_a_status_that_fails_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    """D8: one exception of the status call, and purges are watched as before."""
    answers: list[Any] = [
        ValueError("a bug"),
        SourceStatus("b.1", 4, purge=PurgeDistance(warning="soon")),
    ]

    async def status() -> Any:
        if not answers:
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watched() -> None:
        watch = asyncio.create_task(watch_purge("orders", status, 0.0))
        while answers:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    with caplog.at_level(logging.WARNING):
        asyncio.run(watched())
    assert [record.getMessage() for record in caplog.records] == [
        "destination orders: purges are not watched: a bug",
        "destination orders: soon",
    ]
