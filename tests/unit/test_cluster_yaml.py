"""cluster.yaml passes Ray's own validation and grows by CPU."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ray_canal.actors.ray_settings import RAY_SETTINGS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    return loaded


def validate(config: dict[str, Any]) -> dict[str, Any]:
    """What `ray up` does with the file before it talks to a provider."""
    util = pytest.importorskip("ray.autoscaler._private.util")
    prepared: dict[str, Any] = util.prepare_config(copy.deepcopy(config))
    util.validate_config(prepared)
    return prepared


def test_ray_accepts_it(config: dict[str, Any]) -> None:
    prepared = validate(config)
    assert prepared["head_node_type"] == "head"
    assert prepared["available_node_types"]["head"]["max_workers"] == 0


def test_ray_would_refuse_a_wrong_one(config: dict[str, Any]) -> None:
    broken = copy.deepcopy(config)
    broken["available_node_types"]["decoders"]["max_wrokers"] = 3
    with pytest.raises(jsonschema.ValidationError, match="max_wrokers"):
        validate(broken)
    headless = copy.deepcopy(config)
    headless["head_node_type"] = "nothing"
    with pytest.raises(ValueError, match="head_node_type"):
        validate(headless)


def test_every_node_has_the_settings_of_ray_that_we_use(config: dict[str, Any]) -> None:
    settings = " ".join(f"{name}={value}" for name, value in RAY_SETTINGS.items())
    for node in ("head", "worker"):
        assert settings in " ".join(config[f"{node}_start_ray_commands"])
    assert settings in (ROOT / "docs" / "how-to" / "jobs.md").read_text(encoding="utf-8")


def test_decode_pool_grows_from_nothing(config: dict[str, Any]) -> None:
    decoders = config["available_node_types"]["decoders"]
    assert decoders["min_workers"] == 0
    assert 0 < decoders["max_workers"] <= config["max_workers"]
    assert decoders["resources"]["CPU"] >= 1  # what a decode task asks for


def test_provider_defaults_add_no_commands(config: dict[str, Any]) -> None:
    """AWS's defaults would install Ray and boto3 into a Python that is not ours."""
    prepared = validate(config)
    commands = prepared["setup_commands"] + prepared["head_setup_commands"]
    assert not [c for c in commands if re.search(r"anaconda|ray-wheels|^pip ", c)]


def test_workers_start_with_the_head_port(config: dict[str, Any]) -> None:
    head = " ".join(config["head_start_ray_commands"])
    worker = " ".join(config["worker_start_ray_commands"])
    assert "--port=6379" in head
    assert "$RAY_HEAD_IP:6379" in worker
    assert "--autoscaling-config" in head
