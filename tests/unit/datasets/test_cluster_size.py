"""When a Dataset that begins to run looks at the cluster's size; the run itself is
tests/integration/test_datasets.py's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.data import DataContext
from ray.data._internal.execution.resource_manager import ResourceManager

from ray_canal.datasets import cluster_size
from ray_canal.datasets.cluster_size import known_at_once

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Resources:
    """As Ray's, of an executor."""

    GLOBAL_LIMITS_UPDATE_INTERVAL_S = 1.0

    def __init__(self) -> None:
        self.cpu = 0

    def get_global_limits(self) -> Any:
        return SimpleNamespace(cpu=self.cpu)


def callback_of(dataset: Any) -> Any:
    (found,) = dataset.context.custom_execution_callback_classes
    return found()


def test_this_ray_has_what_is_changed() -> None:
    assert ResourceManager.GLOBAL_LIMITS_UPDATE_INTERVAL_S == 1
    assert cluster_size.ExecutionCallback is not None


def test_the_size_is_looked_at_until_it_is_known() -> None:
    dataset = SimpleNamespace(context=DataContext())
    assert known_at_once(known_at_once(dataset)) is dataset
    callback, resources = callback_of(dataset), Resources()
    executor = SimpleNamespace(_resource_manager=resources)
    callback.before_execution_starts(executor)
    callback.on_execution_step(executor)
    assert resources.GLOBAL_LIMITS_UPDATE_INTERVAL_S < 0.1
    resources.cpu = 2
    for _ in range(2):
        callback.on_execution_step(executor)
        assert resources.GLOBAL_LIMITS_UPDATE_INTERVAL_S == 1.0
    assert Resources.GLOBAL_LIMITS_UPDATE_INTERVAL_S == 1.0
    assert not DataContext.get_current().custom_execution_callback_classes


def test_nothing_is_changed_where_ray_has_no_such_thing() -> None:
    dataset = SimpleNamespace(context=object())
    assert known_at_once(dataset) is dataset
    other = SimpleNamespace(context=DataContext())
    callback = callback_of(known_at_once(other))
    for executor in (SimpleNamespace(), SimpleNamespace(_resource_manager=SimpleNamespace())):
        callback.before_execution_starts(executor)
        callback.on_execution_step(executor)
        assert "GLOBAL_LIMITS_UPDATE_INTERVAL_S" not in vars(executor)
