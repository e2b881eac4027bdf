"""A file system that fails in the middle: before or after one of its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CALLS = ("exists", "names", "below", "read", "write", "move", "delete")


class Killed(Exception):
    """The process is dead from here on, or the answer got lost."""


@dataclass
class FaultyFiles:
    """`files`, but that call number `at`, or the first of the name `call`, raises Killed: before it
    is done, or `after`."""

    files: Any
    at: int
    after: bool = False
    call: str = ""
    calls: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return len(self.calls) > self.at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.files, name)
        return self._failing(name, found) if name in CALLS else found

    def _failing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            number = len(self.calls)
            self.calls.append(name)
            fails = name == self.call or number == self.at
            if fails and not self.after:
                raise Killed(f"before {name}{arguments}")
            answer = call(*arguments)
            if fails:
                raise Killed(f"after {name}{arguments}")
            return answer

        return called
