"""Frames of the local socket: values round trip, and what only Ray can carry is told."""

from __future__ import annotations

import pickle
import socket

import pytest
import ray

from ray_canal.actors import local_frames
from ray_canal.actors.local_frames import body_bytes, framed, is_portable, is_same_user
from ray_canal.actors.ray_internals import Untracked
from ray_canal.model.message import MessageHead, MessagePart


def test_a_frame_has_its_length_and_the_value() -> None:
    frame = framed({"a": [1, 2]})
    assert body_bytes(frame) == len(frame) - local_frames.HEAD_BYTES
    assert pickle.loads(frame[local_frames.HEAD_BYTES :]) == {"a": [1, 2]}
    assert body_bytes(local_frames.CANCEL) == 0


def _head(payload: object) -> MessageHead:
    return MessageHead(1, 2, (MessagePart(payload, 0, 1, None),))


def test_references_that_ray_tracks_stay_with_ray() -> None:
    assert is_portable(None)
    assert is_portable(MessageHead(-1, 2))
    assert is_portable(_head(Untracked(b"id", b"owner", b"status")))
    assert not is_portable(_head(ray.ObjectRef.from_random()))


def test_another_users_process_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_same_user(one)
        monkeypatch.setattr(local_frames.os, "geteuid", lambda: 12345)
        assert not is_same_user(other)
