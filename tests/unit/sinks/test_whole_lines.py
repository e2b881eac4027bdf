"""Half a line that a full disk has left: readers of the file met text that is no JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_canal.sinks.whole_lines import end_last_line

LINE = json.dumps({"id": 1, "text": "Grüße \N{KITE}" * 10_000}, ensure_ascii=False).encode()


@pytest.mark.parametrize("before", [b"", b"{}\n", LINE + b"\n" + LINE + b"\n"])
def test_half_a_line_is_cut_off(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "changes.jsonl"
    for length in (1, 2, 30, 31, 70_000, len(LINE) - 1):
        path.write_bytes(before + LINE[:length])
        end_last_line(path)
        assert path.read_bytes() == before, length


def test_whole_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    for text in (b"", LINE + b"\n", LINE + b"\n" + LINE):
        path.write_bytes(text)
        end_last_line(path)
        assert path.read_bytes() == text + (b"\n" if text and text[-1:] != b"\n" else b"")
    end_last_line(Path("/dev/full"))
