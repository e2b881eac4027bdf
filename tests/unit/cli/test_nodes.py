"""What `ray-canal nodes` shows."""

from __future__ import annotations

from typing import Any

from ray_canal.cli.nodes import lines


def test_a_line_says_what_a_node_is_and_has() -> None:
    node: dict[str, Any] = {
        "node": "0123456789abcdef",
        "head": False,
        "draining": True,
        "cpus": 4.0,
        "labels": {},
        "destinations": [f"d{number}" for number in range(8)],
        "bytes_per_second": 2_500_000.0,
        "memory_bytes": 64 << 20,
    }
    head = {**node, "head": True, "draining": False, "destinations": []}
    one, two = lines([node, head])
    assert one.startswith("0123456789ab  4 CPUs, draining: 8 destinations, ")
    assert one.endswith("(d0, d1, d2, d3, d4, d5, …)")
    assert "4 CPUs, head: 0 destinations" in two
