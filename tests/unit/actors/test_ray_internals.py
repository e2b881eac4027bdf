"""Private calls of Ray's: they are there, and without them a plain way takes their place."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

from ray_canal.actors import ray_internals
from ray_canal.errors import InstanceNotRunning
from tests.unit.actors.small_cluster import SmallCluster


def test_this_ray_has_them_all() -> None:
    assert ray_internals.HAS_UNTRACKED
    assert ray_internals.get_local_object_locations is not None
    assert ray_internals.resolve_ip_for_localhost is not None
    assert ray_internals.get_ray_address_from_environment is not None
    assert ray_internals.internal_kv_get_gcs_client is not None


def test_without_untracked_references_a_message_carries_rays_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_internals, "HAS_UNTRACKED", False)
    reference = ray.ObjectRef.from_random()
    assert ray_internals.untracked(reference) is reference


def test_what_is_no_reference_stays_what_it_is() -> None:
    assert ray_internals.untracked("a small chunk") == "a small chunk"


def test_without_locations_no_chunk_is_taken_for_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_internals, "get_local_object_locations", None)
    reference = ray.ObjectRef.from_random()
    assert ray_internals.nodes_of([reference]) == {reference.binary(): frozenset()}
    assert ray_internals.nodes_of([]) == {}


def test_without_rays_resolver_an_address_stays_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ray_internals.address_for_others("192.0.2.7") == "192.0.2.7"
    monkeypatch.setattr(ray_internals, "resolve_ip_for_localhost", None)
    assert ray_internals.address_for_others("localhost") == "localhost"


def test_auto_is_the_address_in_rays_file_and_nothing_where_ray_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", lambda: set())
    assert ray_internals.address_of_auto() == ""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("192.0.2.7:6379")
    assert ray_internals.address_of_auto() == "192.0.2.7:6379"
    monkeypatch.setattr(ray_internals, "get_ray_address_from_environment", None)
    assert ray_internals.address_of_auto() == ""


def test_a_process_that_has_joined_nothing_has_no_raylet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ray_internals.joined_node() is None
    monkeypatch.delattr(ray_internals.ray_worker, "_global_node")
    assert ray_internals.joined_node() is None
    assert ray_internals.raylet_socket(None) == ""


def test_without_rays_own_client_of_the_head_a_limit_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = SmallCluster(monkeypatch)

    def a_life_of_a_key() -> None:
        assert not ray_internals.kv_put("key", "first", limit_s=1.0)
        assert ray_internals.kv_put("key", "value", limit_s=1.0)
        assert ray_internals.kv_put("key", "other", overwrite=False, limit_s=1.0)
        assert ray_internals.kv_get("key", 1.0) == "value"
        assert ray_internals.kv_keys("k", 1.0) == ["key"]
        assert ray_internals.kv_all("k", 1.0) == ray_internals.kv_all("k") == {"key": "value"}
        assert ray_internals.kv_all("other") == {}
        assert ray_internals.kv_delete("key", 1.0)
        assert not ray_internals.kv_delete("key", 1.0)

    a_life_of_a_key()
    cluster.head_sleeps = True
    for call in (
        lambda: ray_internals.kv_get("key", 1.0),
        lambda: ray_internals.kv_keys("key", 1.0),
        lambda: ray_internals.kv_all("key", 1.0),
        lambda: ray_internals.kv_put("key", "value", limit_s=1.0),
        lambda: ray_internals.kv_delete("key", 1.0),
    ):
        with pytest.raises(InstanceNotRunning, match=r"Deadline Exceeded after 1 s\): .* start"):
            call()
    assert not cluster.values
    monkeypatch.setattr(ray_internals, "internal_kv_get_gcs_client", None)
    a_life_of_a_key()
