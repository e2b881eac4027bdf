"""All of a cluster's CPUs from a Dataset's start.

Ray Data (seen in 2.60) asks for the cluster's size when a Dataset begins to run, and looks at the
answer a second later; for so long it runs one task at a time. Here it looks at once. It is Ray's
own attribute that is changed, of one run: where there is none such, the first second stays as slow.
"""

from __future__ import annotations

from typing import Any

from ray.data import Dataset

try:
    from ray.data._internal.execution.execution_callback import ExecutionCallback
except ImportError:  # another version of Ray
    ExecutionCallback = None

_INTERVAL = "GLOBAL_LIMITS_UPDATE_INTERVAL_S"
_AT_ONCE_S = 0.01


def known_at_once(dataset: Dataset) -> Dataset:
    """Return the Dataset, which when it runs, and whatever is made of it, knows the cluster's size
    as soon as Ray tells it."""
    context = dataset.context
    known = getattr(context, "custom_execution_callback_classes", None)
    if known is not None and ExecutionCallback is not None and _SizeAtOnce not in known:
        context.custom_execution_callback_classes = [*known, _SizeAtOnce]
    return dataset


class _SizeAtOnce(ExecutionCallback or object):  # type: ignore[misc]
    """Called by Ray Data for each run of a Dataset."""

    def before_execution_starts(self, executor: Any) -> None:
        """Have the size looked at with each step."""
        resources: Any = getattr(executor, "_resource_manager", None)
        if hasattr(resources, _INTERVAL):
            setattr(resources, _INTERVAL, _AT_ONCE_S)

    def on_execution_step(self, executor: Any) -> None:
        """Go on as usual once it is known."""
        resources: Any = getattr(executor, "_resource_manager", None)
        if _INTERVAL in getattr(resources, "__dict__", ()) and resources.get_global_limits().cpu:
            delattr(resources, _INTERVAL)
