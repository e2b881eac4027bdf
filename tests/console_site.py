"""A console in this process over the Ray that it has joined, calls of it, and what pages show."""

from __future__ import annotations

import json
import urllib.request
from html.parser import HTMLParser
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


class PageValues(HTMLParser):
    """`facts`: of each dt the text of its dd. `rows`: of each table row the texts of its cells, the
    value of a field among them. `stages`: the texts of the pipeline's stages."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.stages: list[str] = []
        self._facts: list[list[str]] = []
        self._to: list[str] | None = None
        self._in_pipeline = False
        self.feed(html)
        self.close()

    @property
    def facts(self) -> dict[str, str]:
        """Of each dt the text of its dd."""
        return {name.strip(): value.strip() for name, value in self._facts}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a cell, a fact or a stage; closing tags are left out where HTML allows it."""
        given = dict(attrs)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._to = self.rows[-1]
        elif tag == "dt":
            self._facts.append([""])
            self._to = self._facts[-1]
        elif tag == "dd":
            self._facts[-1].append("")
        elif tag == "ol":
            self._in_pipeline = given.get("class") == "pipeline"
        elif tag == "li" and self._in_pipeline:
            self.stages.append("")
            self._to = self.stages
        elif tag == "input" and given.get("name") == "tables" and self._to:
            self._to[-1] += given.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        """End what text belongs to."""
        if tag in ("table", "dl", "ol"):
            self._to = None
            self._in_pipeline = False

    def handle_data(self, data: str) -> None:
        """Add text to what is open."""
        if self._to:
            self._to[-1] += " ".join(data.split()) + " " if data.strip() else ""
