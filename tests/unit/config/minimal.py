"""The smallest configuration of a deployment, for tests to change."""

from __future__ import annotations

from pathlib import Path

MINIMAL = """
[[instance]]
destination = "orders"
[instance.source]
address = "db.example:3307"
password = "env:CANAL_PASSWORD"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "canal.toml"
    path.write_text(text)
    return path
