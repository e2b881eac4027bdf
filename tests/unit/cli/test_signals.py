"""Ctrl-C ends a command in order; a second one ends it at once."""

from __future__ import annotations

import signal

import pytest

from ray_canal.cli.signals import interrupted_by_sigterm, until_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_sets_the_event_and_the_second_interrupts(number: signal.Signals) -> None:
    found = signal.signal(number, signal.default_int_handler)  # `nohup make test` ignores SIGHUP
    try:
        with until_signal(signal.SIGHUP) as stopped:
            assert not stopped.is_set()
            signal.raise_signal(number)
            assert stopped.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, found)


def test_a_signal_that_is_ignored_stays_so() -> None:
    """`nohup ray-canal tail NAME` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with until_signal(signal.SIGHUP) as stopped:
            signal.raise_signal(signal.SIGHUP)
            assert not stopped.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_sigterm_interrupts_a_command() -> None:
    """While `tail` waits for a source, or `start` does, no event is looked at."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        interrupted_by_sigterm()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
