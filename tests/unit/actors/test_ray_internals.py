"""Private calls of Ray's: they are there, and without them a plain way takes their place."""

from __future__ import annotations

import pytest
import ray

from ray_canal.actors import ray_internals


def test_this_ray_has_them_all() -> None:
    assert ray_internals.HAS_UNTRACKED
    assert ray_internals.get_local_object_locations is not None
    assert ray_internals.resolve_ip_for_localhost is not None


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


def test_a_process_that_has_joined_nothing_has_no_raylet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ray_internals.joined_node() is None
    monkeypatch.delattr(ray_internals.ray_worker, "_global_node")
    assert ray_internals.joined_node() is None
    assert ray_internals.raylet_socket(None) == ""
