"""A cluster in this process: Ray's key-value store is a dict, an actor is a handle that notes the
calls of it and answers what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, RpcError

from ray_canal.actors import ray_internals

NODE = "a" * 56
SILENT = object()
"""The answer of an actor whose process is stopped."""


class Reply:
    """The reference of an answer."""

    def __init__(self, answer: Any) -> None:
        self._future: Future[Any] = Future()
        if isinstance(answer, Exception):
            self._future.set_exception(answer)
        elif answer is not SILENT:
            self._future.set_result(answer)

    def future(self) -> Future[Any]:
        return self._future


@dataclass(eq=False)
class Handle:
    """An actor's handle. `answers`: by method, a value, an exception, SILENT or a function of the
    call's arguments. `made`: the class, its options and what it was made with."""

    name: str
    made: Any = None
    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    lives: int = 1

    @property
    def _actor_id(self) -> Any:
        return SimpleNamespace(hex=lambda: f"{id(self)}-{self.lives}")

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)

        def remote(*arguments: Any) -> Reply:
            self.calls.append((method, *arguments))
            answer = self.answers.get(method)
            return Reply(answer(*arguments) if callable(answer) else answer)

        return SimpleNamespace(remote=remote)

    def called(self, method: str) -> list[tuple[Any, ...]]:
        """Return what it was called with."""
        return [given for name, *given in map(tuple, self.calls) if name == method]  # type: ignore


class SmallCluster:
    """Stands for Ray while `monkeypatch` lasts. `born`: answers that a new actor has.
    `head_sleeps`: what is asked of the head with a limit comes to its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: dict[str, bytes] = {}
        self.actors: dict[str, Handle] = {}
        self.made: list[Handle] = []
        self.killed: list[tuple[str, bool]] = []
        self.head_sleeps = False
        self.born: Callable[[type], dict[str, Any]] = lambda actor: {}
        for name, call in {
            "_internal_kv_get": lambda key: self.values.get(key),
            "_internal_kv_put": self._put,
            "_internal_kv_del": lambda key: int(self.values.pop(key, None) is not None),
            "_internal_kv_list": lambda prefix: self._keys(prefix.encode()),
        }.items():
            monkeypatch.setattr(ray_internals, name, call)
        head = SimpleNamespace(
            internal_kv_get=self._get,
            internal_kv_multi_get=self._get_all,
            internal_kv_keys=self._keys,
            internal_kv_put=self._put_within,
            internal_kv_del=self._delete_within,
        )
        monkeypatch.setattr(ray_internals, "internal_kv_get_gcs_client", lambda: head)
        context = SimpleNamespace(get_node_id=lambda: NODE, current_actor=Handle("me"))
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
        monkeypatch.setattr(ray, "get_actor", self._find)
        monkeypatch.setattr(ray, "kill", self._kill)
        monkeypatch.setattr(ray, "remote", self._remote)
        monkeypatch.setattr(ray.util, "list_named_actors", self._listed)

    def _get(self, key: bytes, namespace: None, limit_s: float) -> bytes | None:
        self._refuse_asleep()
        return self.values.get(key.decode())

    def _get_all(
        self, keys: list[bytes], namespace: None, limit_s: float | None
    ) -> dict[bytes, bytes]:
        if limit_s is not None:
            self._refuse_asleep()
        found = {key: self.values.get(key.decode()) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def _keys(self, prefix: bytes, *limits: Any) -> list[bytes]:
        if limits:
            self._refuse_asleep()
        return [key.encode() for key in self.values if key.startswith(prefix.decode())]

    def _refuse_asleep(self) -> None:
        if self.head_sleeps:
            raise RpcError("Deadline Exceeded")

    def _put(self, key: str, value: str, *, overwrite: bool = True) -> bool:
        had = key in self.values
        if overwrite or not had:
            self.values[key] = value.encode()
        return had

    def _put_within(
        self, key: bytes, value: bytes, overwrite: bool, namespace: None, limit_s: float
    ) -> int:
        self._refuse_asleep()
        return int(not self._put(key.decode(), value.decode(), overwrite=overwrite))

    def _delete_within(self, key: bytes, by_prefix: bool, namespace: None, limit_s: float) -> int:
        self._refuse_asleep()
        return int(self.values.pop(key.decode(), None) is not None)

    def _find(self, name: str, namespace: str) -> Handle:
        if self.head_sleeps:
            raise GetTimeoutError("the GCS server is dead or under high load")
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def _listed(self, all_namespaces: bool) -> list[dict[str, str]]:
        if self.head_sleeps:
            raise GetTimeoutError("the GCS server is dead or under high load")
        return [{"name": name, "namespace": "ns"} for name in self.actors]

    def _kill(self, handle: Handle, no_restart: bool = True) -> None:
        self.killed.append((handle.name, no_restart))
        handle.lives += 1
        if no_restart:
            self.actors.pop(handle.name, None)

    def _remote(self, *actor: type, **groups: Any) -> Any:
        if not actor:
            return self._remote if not groups else lambda each: self._options(each, groups)
        return self._options(actor[0], {})

    def _options(self, actor: type, options: dict[str, Any]) -> Any:
        def remote(*given: Any) -> Handle:
            name = options.get("name", "")
            if options.get("get_if_exists") and name in self.actors:
                return self.actors[name]
            handle = Handle(name or actor.__name__, (actor, options, given), self.born(actor))
            self.made.append(handle)
            if name:
                self.actors[name] = handle
            return handle

        return SimpleNamespace(
            options=lambda **more: self._options(actor, {**options, **more}), remote=remote
        )


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    async def turn() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(turn(), seconds)
