"""`nodes`: which destinations run where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ray_canal.cli.answer import answer
from ray_canal.cli.options import NAMESPACE, AsJson, Namespace
from ray_canal.model.quantities import size_text

_NAMED = 6


def nodes(
    as_json: AsJson = False,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show each node of the cluster, the destinations that run there and what they take."""
    import ray_canal as canal

    found = canal.nodes(namespace=namespace)
    answer(found, *lines(found), as_json=as_json)


def lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return a line for each node."""
    for each in found:
        what = [f"{each['cpus']:g} CPUs"]
        what += [word for word in ("head", "draining") if each[word]]
        names = each["destinations"]
        told = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        yield (
            f"{each['node'][:12]}  {', '.join(what)}: {len(names)} destinations, "
            f"{size_text(each['bytes_per_second'])}/s, {size_text(each['memory_bytes'])} of log"
            + (f" ({told})" if told else "")
        )
