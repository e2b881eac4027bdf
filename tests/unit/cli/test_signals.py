"""Ctrl-C ends a command in order; a second one ends it at once."""

from __future__ import annotations

import signal

import pytest

from ray_canal.cli.signals import until_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_event_and_the_second_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with until_signal() as stopped:
        assert not stopped.is_set()
        signal.raise_signal(number)
        assert stopped.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before
