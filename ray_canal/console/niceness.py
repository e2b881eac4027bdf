"""The CPU priority of a console's process: below that of destinations."""

from __future__ import annotations

from ray_canal.actors.priority import lower_to

NICENESS = 10
"""Where a destination wants the CPU that a flooded console has, too, the console gets a tenth of
it: enough to show an outage on a machine that is busy, and little enough for nobody to notice."""


def give_way() -> None:
    """Let all threads of this process, and those that come, have at least this niceness."""
    lower_to(NICENESS)
