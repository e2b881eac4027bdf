"""A console in this process over the Ray that it has joined, and calls of it."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import ray_canal as canal
from ray_canal.config import ConsoleConfig
from ray_canal.console.app import Console
from ray_canal.console.cluster import Cluster
from ray_canal.console.first_source import SourceFiles


class Site:
    """One console; `close` stops the destinations of its namespace, too."""

    def __init__(self, folder: Path, namespace: str, **console: Any) -> None:
        config = ConsoleConfig.model_validate({"port": 0, "refresh_s": 0.5, **console})
        self.namespace = namespace
        self.file = folder / "canal.toml"
        self.console = Console(config, Cluster(namespace), SourceFiles(str(self.file)))
        self.url = self.console.start()

    def ask(self, path: str, value: Any = None, method: str = "GET") -> Any:
        """The JSON of an answer, else its text."""
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.url + path, body, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=90) as answer:
            text = answer.read().decode()
        return json.loads(text) if path.startswith("/api/") else text

    def close(self) -> None:
        for name in canal.destinations(namespace=self.namespace):
            canal.stop(name, namespace=self.namespace)
        self.console.stop()
