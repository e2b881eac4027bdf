"""Settings of Ray's own for a Ray that we start. Who starts another one sets them himself:
docs/how-to/jobs.md."""

from __future__ import annotations

import os

RAY_SETTINGS = {
    # Workers are as any other process; see priority.py.
    "RAY_worker_niceness": "0",
    # Objects that nobody refers to any more are freed so soon, instead of once a second. A log's
    # chunks then lie in the same few megabytes of the object store again and again, instead of
    # passing through all of it: each page of it costs its first touch, in every process.
    "RAY_free_objects_period_milliseconds": "20",
}


def use_ray_settings() -> None:
    """Put our settings into the environment, for a Ray that this process is about to start; what
    is set there counts."""
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    if folder := os.environ.get("RAY_TMPDIR"):  # Ray's processes have other working directories
        os.environ["RAY_TMPDIR"] = os.path.abspath(folder)
