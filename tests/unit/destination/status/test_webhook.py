"""Notices reach a real web server: signed, in order, tried again."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ray_canal.config import load
from ray_canal.destination.status.webhook import Webhook, signature
from ray_canal.errors import ConfigError
from tests.http_receiver import HttpReceiver


@contextmanager
def webhook(url: str, secret: str = "s3cret", retry_s: float = 60.0) -> Iterator[Webhook]:
    hook = Webhook(
        lambda: url, lambda: secret, timeout_s=10.0, retry_s=retry_s, pause_min_s=0.01
    )
    try:
        yield hook
    finally:
        hook.close()


def bodies(receiver: HttpReceiver) -> list[int]:
    return [json.loads(body)["n"] for _, body in receiver.requests]


def test_each_is_signed_and_they_come_in_order() -> None:
    with HttpReceiver() as receiver, webhook(receiver.url) as hook:
        for number in range(5):
            hook.send({"n": number})
        receiver.until(lambda: len(receiver.requests) == 5)
        assert bodies(receiver) == [0, 1, 2, 3, 4]
        headers, body = receiver.requests[0]
        wanted = signature("s3cret", headers["X-Ray-Canal-Timestamp"], body)
        assert hmac.compare_digest(headers["X-Ray-Canal-Signature"], wanted)
        assert wanted.startswith("sha256=")
        assert len({each["X-Ray-Canal-Delivery"] for each, _ in receiver.requests}) == 5


def test_without_a_secret_there_is_no_signature() -> None:
    with HttpReceiver() as receiver, webhook(receiver.url, "") as hook:
        hook.send({"n": 1})
        receiver.until(lambda: receiver.requests)
        assert "X-Ray-Canal-Signature" not in receiver.requests[0][0]


def test_one_that_fails_is_tried_again_and_those_behind_it_wait() -> None:
    with HttpReceiver((503, 429, 500)) as receiver, webhook(receiver.url) as hook:
        hook.send({"n": 1})
        hook.send({"n": 2})
        receiver.until(lambda: len(receiver.requests) == 5)
        assert bodies(receiver) == [1, 1, 1, 1, 2]
        deliveries = [headers["X-Ray-Canal-Delivery"] for headers, _ in receiver.requests]
        assert len(set(deliveries[:4])) == 1
        assert deliveries[4] != deliveries[0]


def test_one_that_is_refused_for_good_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with HttpReceiver((400,)) as receiver, webhook(receiver.url) as hook:
        hook.send({"n": 1})
        hook.send({"n": 2})
        receiver.until(lambda: len(receiver.requests) == 2)
        assert bodies(receiver) == [1, 2]
    assert "HTTP 400" in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_not_taken_for_an_arrival(
    caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.ERROR)
    with HttpReceiver() as inner:
        with HttpReceiver((status,), inner.url) as receiver, webhook(receiver.url) as hook:
            hook.send({"n": 1})
            hook.send({"n": 2})
            receiver.until(lambda: len(receiver.requests) == 2)
            assert bodies(receiver) == [1, 2]
        assert inner.requests == []
    assert f"HTTP {status}" in caplog.text


def test_nobody_answers_and_no_secret_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with HttpReceiver() as receiver:
        url = receiver.url + "?token=t0ken"
    with webhook(url, retry_s=0.0) as hook, webhook("file:///etc/hosts") as other:
        hook.send({"n": 1})
        other.send({"n": 2})
        receiver.until(lambda: caplog.text.count("given up") == 2)
    assert "none of http or https" in caplog.text
    assert "t0ken" not in caplog.text
    assert "s3cret" not in caplog.text


def test_its_url_and_secret_are_references() -> None:
    tree = {"instance": [{"destination": "x", "source": {"address": "db"}}]}
    notify = load({**tree, "notify": {"url": "env:HOOK", "secret": "file:/run/hook"}}).notify
    assert notify is not None
    assert str(notify.url) == "env:HOOK"
    for key in ("url", "secret"):
        with pytest.raises(ConfigError, match="env:NAME or file:PATH"):
            load({**tree, "notify": {key: "https://hooks.example/t0ken"}})
