"""In which keys two configurations differ. Values are not told: some are secrets."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)


def parsed(kind: type[Model], json: str) -> Model | None:
    """A configuration that was kept as JSON; None: of another version, which had other keys."""
    try:
        return kind.model_validate_json(json)
    except ValidationError:
        return None


def changed_keys(one: BaseModel, other: BaseModel, prefix: str = "") -> list[str]:
    """The keys whose values differ, as they stand in a file: `filter.tables`. Both are of one
    class."""
    found: list[str] = []
    for key in type(one).model_fields:
        before, after = getattr(one, key), getattr(other, key)
        if before == after:
            continue
        if isinstance(before, BaseModel) and type(before) is type(after):
            found += changed_keys(before, after, f"{prefix}{key}.")
        else:
            found.append(prefix + key)
    return found
