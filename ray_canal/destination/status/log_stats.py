"""State of a destination's log and of its subscribers' places, for status."""

from __future__ import annotations

import time

from ray_canal.destination.attendance import Attendance
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.state import DestinationState
from ray_canal.model.reports import LogReport, PlaceReport


class LogStats:
    """Reads the state of one destination's log."""

    def __init__(
        self, state: DestinationState, catch_ups: CatchUps, attendance: Attendance
    ) -> None:
        self._state = state
        self._catch_ups = catch_ups
        self._attendance = attendance

    def report(self) -> LogReport:
        """Return fill, disk and subscribers as plain values; empty without a log."""
        pipeline = self._state.log.pipeline
        if pipeline is None:
            return {}
        stats: LogReport = {**pipeline.store.stats(), **pipeline.disk_report()}
        stats["full_s"] = pipeline.full_s
        stats["held_by"] = pipeline.store.held_by() if pipeline.full_s else []
        stats["subscribers"].update(self._catch_ups.places())
        known, places = self._state.subscribers.known, stats["subscribers"]
        # The log forgets one a moment later than its record.
        stats["subscribers"] = {each: places[each] for each in places if int(each) in known}
        for client_id, place in stats["subscribers"].items():
            place["last_call_s"] = self._attendance.since_call_s(int(client_id))
            since = place.pop("waiting_since", None)
            place["seconds_behind"] = 0.0 if since is None else max(time.time() - since, 0.0)
            if place["entries_behind"] is None:
                place["seconds_behind"] = None
            place["failed"] = place["failure"] is not None
            place["expired"] = known[int(client_id)].expired or None
        return stats

    def place(self, client_id: int) -> PlaceReport:
        """Return what the log says of a subscriber; empty without a log."""
        places: dict[str, PlaceReport] = self.report().get("subscribers", {})
        return places.get(str(client_id), {})
