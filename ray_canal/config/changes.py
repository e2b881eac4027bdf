"""In which keys two configurations differ. Values of secrets are not told."""

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


def changed_keys(one: BaseModel, other: BaseModel) -> list[str]:
    """Return the keys whose values differ, as they stand in a file: `filter.tables`. Both are of
    one class."""
    return [*changed_values(one, other)]


def changed_values(
    one: BaseModel, other: BaseModel, prefix: str = ""
) -> dict[str, tuple[str, str]]:
    """Return the values before and after as text, by key; those of secrets are hidden."""
    found: dict[str, tuple[str, str]] = {}
    for key in type(one).model_fields:
        before, after = getattr(one, key), getattr(other, key)
        if before == after:
            continue
        if isinstance(before, BaseModel) and type(before) is type(after):
            found |= changed_values(before, after, f"{prefix}{key}.")
        else:
            found[prefix + key] = repr(before), repr(after)
    return found
