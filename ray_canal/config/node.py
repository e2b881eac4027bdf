"""`node`: on which of the cluster's nodes something may run."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator

HEAD, ANY = "head", "any"
_PART = re.compile(r"[A-Za-z0-9_.:/\-]+(=[A-Za-z0-9_.\-]*)?")


@dataclass(frozen=True)
class NodeSelector:
    """Requirements of a node: the head, or one that has all these labels and custom resources."""

    head: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    resources: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> NodeSelector:
        """Return the selector of "head", "any", or `label=value` and resource names with commas.
        Raises ValueError: it is none of these."""
        if text in (HEAD, ANY):
            return cls(head=text == HEAD)
        labels, resources = {}, []
        for part in (each.strip() for each in text.split(",")):
            if not _PART.fullmatch(part) or part in (HEAD, ANY):
                raise ValueError(
                    f"node {text!r}: expected 'head', 'any', or labels and resources of a node "
                    "with commas, as 'ray.io/node-group=stores' or 'ssd'"
                )
            name, is_label, value = part.partition("=")
            if is_label:
                labels[name] = value
            else:
                resources.append(name)
        return cls(labels=labels, resources=tuple(resources))

    def matches(self, labels: Mapping[str, str], resources: Collection[str]) -> bool:
        """Return whether a node with these labels and resources is meant; not whether it is the
        head."""
        return all(labels.get(name) == value for name, value in self.labels.items()) and all(
            name in resources for name in self.resources
        )


def _checked(text: str) -> str:
    if text:
        NodeSelector.parse(text)
    return text


NodeText = Annotated[str, AfterValidator(_checked)]
