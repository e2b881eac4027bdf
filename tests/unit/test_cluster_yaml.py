"""cluster.yaml passes Ray's own validation and grows by CPU; the manifests in the docs parse."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ray_canal.actors.ray_settings import RAY_SETTINGS

ROOT = Path(__file__).parents[2]
KUBERNETES = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")


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
    assert all(f'{{name: {name}, value: "{value}"}}' in KUBERNETES
               for name, value in RAY_SETTINGS.items())  # fmt: skip
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


def test_kubernetes_manifests_parse() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", KUBERNETES, re.DOTALL)
    documents = [d for block in blocks for d in yaml.safe_load_all(block)]
    by_kind = {document["kind"]: document for document in documents}
    assert {"RayCluster", "PersistentVolumeClaim", "Secret", "ConfigMap"} <= set(by_kind)
    spec = by_kind["RayCluster"]["spec"]
    assert spec["enableInTreeAutoscaling"] is True
    group = spec["workerGroupSpecs"][0]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    head = spec["headGroupSpec"]["template"]["spec"]
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in head["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert claims == [by_kind["PersistentVolumeClaim"]["metadata"]["name"]]
    mounts = {mount["name"] for mount in head["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in head["volumes"]}


def documents_of(page: str) -> list[dict[str, Any]]:
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


SECRET_REF = {
    "type": "object",
    "required": ["secretKeyRef"],
    "properties": {"secretKeyRef": {"type": "object", "required": ["name", "key"]}},
}
RAY_CLUSTER = {
    # What KubeRay's schema of ray.io/v1 says of the keys that we use.
    "type": "object",
    "required": ["headGroupSpec", "workerGroupSpecs"],
    "additionalProperties": False,
    "properties": {
        "rayVersion": {"type": "string"},
        "enableInTreeAutoscaling": {"type": "boolean"},
        "autoscalerOptions": {
            "properties": {
                "idleTimeoutSeconds": {"type": "integer"},
                "upscalingMode": {"enum": ["Default", "Aggressive", "Conservative"]},
            }
        },
        "gcsFaultToleranceOptions": {
            "additionalProperties": False,
            "required": ["redisAddress"],
            "properties": {
                "redisAddress": {"type": "string"},
                "redisPassword": {"properties": {"valueFrom": SECRET_REF}},
                "externalStorageNamespace": {"type": "string"},
            },
        },
        "headGroupSpec": {
            "required": ["template"],
            "properties": {"rayStartParams": {"additionalProperties": {"type": "string"}}},
        },
        "workerGroupSpecs": {
            "items": {
                "required": ["groupName", "template", "minReplicas", "maxReplicas"],
                "properties": {
                    "groupName": {"type": "string"},
                    "replicas": {"type": "integer", "minimum": 0},
                    "rayStartParams": {"additionalProperties": {"type": "string"}},
                },
            }
        },
    },
}


@pytest.mark.parametrize("page", ["kubernetes.md", "kubernetes-ha.md"])
def test_ray_clusters_have_the_keys_of_their_schema(page: str) -> None:
    (cluster,) = (each for each in documents_of(page) if each["kind"] == "RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    jsonschema.validate(cluster["spec"], RAY_CLUSTER)
    broken = {**cluster["spec"], "gcsFaultToleranceOption": {}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, RAY_CLUSTER)


def test_a_head_that_may_die_has_nothing_that_would_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """State in Redis, cursors in MySQL, destinations on workers that have what they need."""
    from ray_canal.config.load import load, tomllib
    from ray_canal.config.node import NodeSelector

    documents = documents_of("kubernetes-ha.md")
    by_kind = {each["kind"]: each for each in documents}
    spec = by_kind["RayCluster"]["spec"]
    deployment = load(tomllib.loads(by_kind["ConfigMap"]["data"]["canal.toml"]))
    assert deployment.meta.backend == "mysql"
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert "gcsFaultToleranceOptions" in spec
    (stores,) = (each for each in spec["workerGroupSpecs"] if each["groupName"] == "stores")
    resources = json.loads(json.loads(stores["rayStartParams"]["resources"]))
    for node in (deployment.instance[0].node, deployment.server.node if deployment.server else ""):
        assert NodeSelector.parse(node).matches({}, resources)
    assert stores["minReplicas"] >= 2
    pod = stores["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 30  # Ray drains for so long
    environment = {each["name"] for each in pod["containers"][0]["env"]}
    text = by_kind["ConfigMap"]["data"]["canal.toml"]
    assert set(re.findall(r"env:(\w+)", text)) <= environment
    assert by_kind["Service"]["spec"]["selector"] == stores["template"]["metadata"]["labels"]
    references = re.findall(r"name: ([\w-]+), key: ([\w-]+)", str(spec).replace("'", ""))
    assert {name for name, _ in references} == {by_kind["Secret"]["metadata"]["name"]}
    assert {key for _, key in references} == set(by_kind["Secret"]["stringData"])
    assert all(f"{{name: {name}, value: \"{value}\"}}" in (ROOT / "docs/how-to/kubernetes-ha.md")
               .read_text(encoding="utf-8") for name, value in RAY_SETTINGS.items())  # fmt: skip


def test_kubernetes_config_map_is_a_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray_canal.config.load import load, tomllib

    blocks = re.findall(r"```yaml\n(.*?)```", KUBERNETES, re.DOTALL)
    documents = [d for block in blocks for d in yaml.safe_load_all(block)]
    maps = [d for d in documents if d["kind"] == "ConfigMap"]
    deployment = load(tomllib.loads(maps[0]["data"]["canal.toml"]))
    assert deployment.meta.path.startswith("/var/lib/ray-canal/")
