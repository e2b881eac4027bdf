"""Base of all sections of a configuration: unknown keys refused, addresses, clear errors."""

from __future__ import annotations

import difflib
import ipaddress
import re
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from ray_canal.errors import ConfigError

_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]\s/]+))(?::(?P<port>\d{1,5}))?"
)
_OTHER_NAMES = {"host": "address", "hostname": "address", "port": "address", "user": "username"}
"""Keys by the names that other programs have for them."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class IsPath:
    """Marks a key that names a file or folder: relative to the configuration's file."""


class IsSecret:
    """Marks a key that is a secret, or names where it is: `file:` is a path, as above."""


REFERENCES = ("env", "file", "kept")
"""Prefixes before the colon that say where a secret is read from; see secret.py."""


class HiddenText(str):
    """A secret. Shown, printed or formatted it is stars; a reference to one is itself."""

    __slots__ = ()

    def _shown(self) -> str:
        text = str.__str__(self)
        return text if not text or text.partition(":")[0] in REFERENCES else "**********"

    def __str__(self) -> str:
        return self._shown()

    def __repr__(self) -> str:
        return repr(self._shown())

    def __format__(self, spec: str) -> str:
        return format(self._shown(), spec)


def referred(text: str) -> str:
    """Return a secret that is a reference, as an actor is made with: Ray's head keeps that."""
    scheme = str.__str__(text).partition(":")[0]
    if text and scheme not in REFERENCES[:2]:
        raise ValueError("give it as env:NAME or file:PATH; it is read where it is used")
    return text


FilePath = Annotated[str, IsPath()]
SecretText = Annotated[str, IsSecret(), AfterValidator(HiddenText)]
SecretReference = Annotated[SecretText, AfterValidator(referred)]


class TlsConfig(Section):
    """TLS to a server. `mode` has MySQL's meanings of --ssl-mode."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca: FilePath = ""
    cert: FilePath = ""
    key: FilePath = ""


def host_port_of(address: str, default_port: int, key: str) -> tuple[str, int]:
    """(host, port) of `host`, `host:port`, `[IPv6]:port` or `IPv6`. Raises ConfigError."""
    match = _ADDRESS.fullmatch(address)
    if match is None and address.count(":") > 1 and not address.startswith("["):
        try:  # without a port: which of an address's groups one would be cannot be told
            return str(ipaddress.IPv6Address(address)), default_port
        except ValueError:
            pass
    if match is None or not 0 < int(match["port"] or default_port) < 1 << 16:
        raise ConfigError(f"{key} {address!r}: expected host:port, or [IPv6]:port")
    return match["v6"] or match["host"], int(match["port"] or default_port)


def explained(error: ValidationError, model: type[BaseModel], tree: Any = None) -> str:
    """Return what is wrong, by key, with the nearest valid key of `model` for an unknown one.
    `tree`: what was read; it names the list's entry that is meant."""
    return "; ".join(
        _explain(e, model, _entry_name(e["loc"], tree))
        for e in error.errors(include_input=False, include_url=False)
    )


def _explain(problem: Any, model: type[BaseModel], name: str) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    of_entry = f" ({name})" if name else ""
    if problem["type"] == "extra_forbidden":
        near = _nearest_key(problem["loc"], model)
        hint = f"; did you mean {near!r}?" if near else ""
        return f"unknown key {where!r}{of_entry}{hint}"
    if problem["type"] in ("tuple_type", "missing") and where in ("instance", "sink"):
        return f"{where}: write [[{where}]], in two brackets, for each"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where or 'configuration'}{of_entry}: {message}"


def _entry_name(place: tuple[int | str, ...], tree: Any) -> str:
    """Return the destination or the name of the entry of [[instance]] or [[sink]] at a place."""
    try:
        entry = tree[place[0]][place[1]]
        return str(entry.get("name") or entry.get("destination") or "")
    except (LookupError, TypeError, AttributeError):
        return ""


def _nearest_key(place: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Return the key that an unknown one is meant for: of its own section, else with the place of
    the one that has it; "" if none is like it."""
    *above, key = (str(part) for part in place if isinstance(part, str))
    section, keys = "".join(f"{part}." for part in above), _all_keys(model)
    names = [each.rpartition(".")[2] for each in keys]
    siblings = [n for n, each in zip(names, keys, strict=True) if each == f"{section}{n}"]
    if (other := _OTHER_NAMES.get(key)) in siblings:
        return other
    for likely, likeness in ((siblings, 0.8), (names, 1), (siblings, 0.6), (names, 0.6)):
        if near := difflib.get_close_matches(key, likely, n=1, cutoff=likeness):
            return near[0] if likely is siblings else keys[names.index(near[0])]
    return ""


def _all_keys(section: type[BaseModel], above: str = "") -> list[str]:
    """Return every key of a section and of those in it, with dots: `instance.source.address`."""
    keys: list[str] = []
    for name, info in section.model_fields.items():
        keys.append(f"{above}{name}")
        for part in sections_in(info.annotation):
            keys.extend(_all_keys(part, f"{above}{name}."))
    return keys


def sections_in(kind: Any) -> list[type[BaseModel]]:
    """Return the sections that a key's type names: itself, or what it is a tuple or option of.

    In Python 3.10 `tuple[int]` is a type, too; pydantic's issubclass refused it before 2.11."""
    return [
        each
        for each in (kind, *get_args(kind))
        if get_origin(each) is None and isinstance(each, type) and issubclass(each, BaseModel)
    ]
