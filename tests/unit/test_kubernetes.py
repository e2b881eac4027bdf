"""Manifests in the docs keep to the schemas of Kubernetes and KubeRay, and fit each other."""

from __future__ import annotations

import ast
import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from ray_canal.actors.ray_settings import RAY_SETTINGS
from ray_canal.config.load import load, tomllib
from ray_canal.config.node import NodeSelector

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = ("kubernetes.md", "kubernetes-ha.md")
KUBERNETES_VERSION = "1.31"
RAY_KINDS = ("RayCluster", "RayService")

# KubeRay's own fields, as ray-operator/apis/ray/v1/raycluster_types.go and rayservice_types.go of
# github.com/ray-project/kuberay declare them, and as its generated CRDs
# (helm-chart/kuberay-operator/crds/) check them. Pod templates are checked as pods.
PARAMS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}
SECRET = {
    "type": "object",
    "additionalProperties": False,
    "required": ["key"],
    "properties": {"name": {"type": "string"}, "key": {"type": "string"}},
}
CREDENTIAL = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "value": {"type": "string"},
        "valueFrom": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"secretKeyRef": SECRET},
        },
    },
}
AUTOSCALER = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "idleTimeoutSeconds": {"type": "integer"},
        "upscalingMode": {"enum": ["Default", "Aggressive", "Conservative"]},
        "version": {"enum": ["v1", "v2"]},
        "image": {"type": "string"},
        "imagePullPolicy": {"type": "string"},
        "resources": {"type": "object"},
        "securityContext": {"type": "object"},
        "env": {"type": "array"},
        "envFrom": {"type": "array"},
        "volumeMounts": {"type": "array"},
    },
}
FAULT_TOLERANCE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["redisAddress"],
    "properties": {
        "redisAddress": {"type": "string"},
        "redisUsername": CREDENTIAL,
        "redisPassword": CREDENTIAL,
        "externalStorageNamespace": {"type": "string"},
    },
}
HEAD_GROUP = {
    "type": "object",
    "additionalProperties": False,
    "required": ["template"],
    "properties": {
        "serviceType": {"type": "string"},
        "headService": {"type": "object"},
        "enableIngress": {"type": "boolean"},
        "rayStartParams": PARAMS,
        "template": {"type": "object"},
    },
}
WORKER_GROUP = {
    "type": "object",
    "additionalProperties": False,
    "required": ["groupName", "minReplicas", "maxReplicas", "template"],
    "properties": {
        "groupName": {"type": "string"},
        "replicas": COUNT,
        "minReplicas": COUNT,
        "maxReplicas": COUNT,
        "numOfHosts": COUNT,
        "idleTimeoutSeconds": COUNT,
        "suspend": {"type": "boolean"},
        "rayStartParams": PARAMS,
        "scaleStrategy": {"type": "object"},
        "template": {"type": "object"},
    },
}
RAY_CLUSTER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["headGroupSpec"],
    "properties": {
        "rayVersion": {"type": "string"},
        "suspend": {"type": "boolean"},
        "managedBy": {"type": "string"},
        "headServiceAnnotations": PARAMS,
        "enableInTreeAutoscaling": {"type": "boolean"},
        "autoscalerOptions": AUTOSCALER,
        "gcsFaultToleranceOptions": FAULT_TOLERANCE,
        "headGroupSpec": HEAD_GROUP,
        "workerGroupSpecs": {"type": "array", "items": WORKER_GROUP},
    },
}
RAY_SERVICE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["rayClusterConfig"],
    "properties": {
        "serveConfigV2": {"type": "string"},
        "serveService": {"type": "object"},
        "upgradeStrategy": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"type": {"enum": ["NewCluster", "None"]}},
        },
        "rayClusterConfig": RAY_CLUSTER,
    },
}


def documents_of(page: str) -> list[dict[str, Any]]:
    text = (HOW_TO / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def validate(document: dict[str, Any]) -> None:
    """Raises ValidationError of jsonschema or of kubernetes_validate."""
    if document["kind"] not in RAY_KINDS:
        kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)
        return
    assert document["apiVersion"] == "ray.io/v1"
    assert document["metadata"]["name"]
    spec = document["spec"]
    is_service = document["kind"] == "RayService"
    jsonschema.validate(spec, RAY_SERVICE if is_service else RAY_CLUSTER)
    cluster = spec["rayClusterConfig"] if is_service else spec
    for group in (cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES_VERSION, strict=True)


@pytest.mark.parametrize("page", PAGES)
def test_manifests_keep_to_their_schemas(page: str) -> None:
    found = documents_of(page)
    assert {"RayCluster", "Secret", "ConfigMap"} <= {each["kind"] for each in found}
    for document in found:
        validate(document)


def test_wrong_manifests_are_refused() -> None:
    (cluster,) = (each for each in documents_of("kubernetes-ha.md") if each["kind"] == "RayCluster")
    spec = cluster["spec"]
    with pytest.raises(jsonschema.ValidationError, match="gcsFaultToleranceOption'"):
        validate({**cluster, "spec": {**spec, "gcsFaultToleranceOption": {}}})
    broken = copy.deepcopy(cluster)
    broken["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["imagePull"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePull"):
        validate(broken)
    broken = copy.deepcopy(cluster)
    broken["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    with pytest.raises(jsonschema.ValidationError, match="0 is not of type 'string'"):
        validate(broken)


@pytest.mark.parametrize("page", PAGES)
def test_every_pod_has_the_settings_of_ray_that_we_use(page: str) -> None:
    text = (HOW_TO / page).read_text(encoding="utf-8")
    for name, value in RAY_SETTINGS.items():
        assert f'{{name: {name}, value: "{value}"}}' in text


def test_the_heads_disk_is_claimed_and_mounted() -> None:
    documents = documents_of("kubernetes.md")
    by_kind = {document["kind"]: document for document in documents}
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


def test_a_head_that_may_die_has_nothing_that_would_be_lost() -> None:
    """State in Redis, cursors in MySQL, destinations on workers that have what they need."""
    documents = documents_of("kubernetes-ha.md")
    by_kind = {each["kind"]: each for each in reversed(documents)}  # the first of each
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


def test_the_config_map_is_a_deployment() -> None:
    (map,) = (each for each in documents_of("kubernetes.md") if each["kind"] == "ConfigMap")
    deployment = load(tomllib.loads(map["data"]["canal.toml"]))
    assert deployment.meta.path.startswith("/var/lib/ray-canal/")


def test_the_serve_application_is_there() -> None:
    """Its module is in the folder on PYTHONPATH, and has the name that is imported."""
    service = next(
        each for each in documents_of("kubernetes-ha.md") if each["kind"] == "RayService"
    )
    (program,) = (
        each["data"]
        for each in documents_of("kubernetes-ha.md")
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "ray-canal-serve"
    )
    applications = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, _, name = applications[0]["import_path"].partition(":")
    tree = ast.parse(program[f"{module}.py"])
    assert name in {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
