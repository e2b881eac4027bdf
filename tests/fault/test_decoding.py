"""Decode tasks that never end: their chunks are decoded elsewhere."""

from __future__ import annotations

import signal

import psutil  # type: ignore[import-untyped]
import pytest

import ray_canal as canal
from tests.fault.test_fencing import CLIENT, deployment, insert, next_ids, started, table
from tests.processes import running, send, status, the_one
from tests.servers import Server

_DECODING, _IDLE = "ray::decode_chunk", "ray::IDLE"


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_decode_task_that_hangs_is_given_up(mysql97: Server, local_ray: None) -> None:
    name = "hangs"
    table(mysql97, name)
    config = deployment(mysql97, name, name)
    config["instance"][0].update(decoders=1, decode_timeout_s=5.0)
    with started(config), canal.connect(name, CLIENT, namespace=name) as connector:
        connector.subscribe()
        generations = 1
        for first in range(1, 20, 2):
            for pid in running(_IDLE):  # so that the task has a new one, which loads kernels first
                send(pid, signal.SIGKILL)
            insert(mysql97, name, first, first + 1)
            try:
                hanging = the_one(_DECODING, timeout_s=10.0)
            except AssertionError:  # a process that was there has done it before anybody looked
                assert next_ids(connector, 2) == [first, first + 1]
                continue
            send(hanging, signal.SIGSTOP)
            try:
                assert next_ids(connector, 2) == [first, first + 1]
                generations = canal.status(name, namespace=name)[name]["generations"]
                if generations >= 2:  # else it was done already when it was stopped
                    # It is stopped still, or was ended: nobody woke it, others decoded its chunk.
                    assert status(hanging) in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, "")
                    break
            finally:
                send(hanging, signal.SIGKILL)
        assert generations >= 2
