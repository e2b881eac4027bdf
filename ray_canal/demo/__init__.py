"""The bundled example: a small shop's binlog files from a real MySQL 9.7, and what is true of them.

    make_binlogs.py   the script that made the files (needs a checkout: it starts a test server)
    phrases.py        the words that it puts together
    truth.py          comparing a replay with what the server itself said
    run.py            `ray-canal demo`

No decoding here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CONFIG_PATH = FOLDER / "canal.toml"
DESTINATION = "shop"


def binlog_files() -> list[Path]:
    """The bundled binlog files, oldest first."""
    return sorted(FOLDER.glob("mysql-bin.[0-9]*"))


BINLOGS = tuple(binlog_files())


def expected() -> dict[str, Any]:
    """Return what the server held at the end and what the script changed; see truth.py."""
    found: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    return found
