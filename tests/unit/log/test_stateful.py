"""EventStore and a plain list, given the same calls by hypothesis: they say the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.log.test_random_schedule import Run

ACTIONS = ("get", "ack", "rollback", "rollback_to", "refilter", "unsubscribe")


class Machine(RuleBasedStateMachine):
    """The steps of test_random_schedule.py, chosen and shrunk by hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Any = None

    @precondition(lambda self: self.run is None)
    @rule(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.run = Run(seed)

    @precondition(lambda self: self.run is not None)
    @rule()
    def put(self) -> None:
        self.run.do_put()

    @precondition(lambda self: self.run is not None)
    @rule()
    def subscribe(self) -> None:
        self.run.do_subscribe()

    @precondition(lambda self: self.run is not None)
    @rule()
    def restart(self) -> None:
        self.run.restart()

    @precondition(lambda self: self.run is not None and self.run.cursors)
    @rule(client=st.integers(0, 3), action=st.sampled_from(ACTIONS))
    def act(self, client: int, action: str) -> None:
        known = sorted(self.run.cursors)
        getattr(self.run, f"do_{action}")(known[client % len(known)])

    @invariant()
    def holds(self) -> None:
        if self.run is not None:
            self.run.check_invariants()


TestEventStore = pytest.mark.timeout(120)(Machine.TestCase)
TestEventStore.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
