"""Users of the TCP port and Flight, and their rights.

    right       lets a user
    read        subscribe again as a client id that there is, with the filter that it has; get
                batches; roll back
    ack         acknowledge batches: move a cursor on
    subscribe   make new client ids, and change the filter of one; remove one of those that are the
                user's own (`client_ids`)
    admin       all of that, and remove any client id

A right counts for the user's destinations and client ids. Who enters by the one password of
[server] itself, or where none is asked for, has all rights.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from ray_canal.canal.scramble import accepts, parsed_hash, password_hash
from ray_canal.canal.session import (
    Ack,
    Get,
    Identity,
    Request,
    Unsubscribe,
)
from ray_canal.config import DoorConfig, Right, UserConfig, secret
from ray_canal.config.section import REFERENCES, HiddenText
from ray_canal.errors import AccessDenied

T = TypeVar("T", bound=DoorConfig)

_DOES: dict[Right, str] = {
    "read": "read",
    "ack": "acknowledge batches",
    "subscribe": "make a client id, or change its filter",
    "admin": "remove a client id",
}


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who has logged in. `client_ids` None: any."""

    name: str
    rights: frozenset[str]
    destinations: tuple[str, ...] = ("*",)
    client_ids: tuple[range, ...] | None = None

    def may(self, right: Right) -> bool:
        """Return whether it has the right for anything."""
        return right in self.rights or "admin" in self.rights

    def refuse(self, request: Request) -> None:
        """Raises AccessDenied: the user may not do this. A subscription that makes or changes
        something needs `refuse_without` as well."""
        identity = request.identity
        self.refuse_without("read", identity)
        acks = isinstance(request, Get) and (request.auto_ack or request.done)
        if acks or isinstance(request, Ack):
            self.refuse_without("ack", identity)
        elif isinstance(request, Unsubscribe):
            self.refuse_without("subscribe" if self._owns(identity) else "admin", identity)

    def refuse_without(self, right: Right, identity: Identity) -> None:
        """Raises AccessDenied: the user has not this right there."""
        if not any(fnmatchcase(identity.destination, each) for each in self.destinations):
            raise self._denied("read this destination", identity)
        if not (self.client_ids is None or self._owns(identity)):
            raise self._denied(f"be client {identity.client_id}", identity)
        if not self.may(right):
            raise self._denied(_DOES[right], identity)

    def _owns(self, identity: Identity) -> bool:
        return any(identity.client_id in each for each in self.client_ids or ())

    def _denied(self, what: str, identity: Identity) -> AccessDenied:
        error = AccessDenied(f"user {self.name!r} may not {what} (rights of its `user` section)")
        return error.at(destination=identity.destination)


EVERYBODY = User("", frozenset({"admin"}))


class Access:
    """The check of logins. Passwords are kept as the hashes that a login is checked against."""

    def __init__(self, config: DoorConfig) -> None:
        """Raises ConfigError: a secret cannot be read, or is empty."""
        self._name = config.username
        self._hash = _kept(config.password, config.password_hash)
        self._users: dict[str, tuple[bytes | None, User]] = {}
        for each in config.user:
            owned = each.client_id_ranges or None
            user = User(each.username, frozenset(each.rights), each.destinations, owned)
            self._users[each.username] = _kept(each.password, each.password_hash), user

    def same_as(self, other: Access) -> bool:
        """Return whether the same people may come, for the same things, by the same passwords."""
        return vars(self) == vars(other)

    def login(self, name: str, seed: bytes, answer: bytes) -> User | None:
        """Return the user, if the answer to the seed proves it."""
        if name in self._users:
            kept, user = self._users[name]
            return user if kept is not None and accepts(kept, seed, answer) else None
        if self._hash is None:
            return None if self._users else EVERYBODY
        known = not self._name or self._name == name
        return EVERYBODY if known and accepts(self._hash, seed, answer) else None


def hashed(config: T) -> T:
    """Return the same settings without passwords in clear text: their hashes are all that it
    needs."""
    users = tuple(each.model_copy(update=_hash_of(each)) for each in config.user)
    return config.model_copy(update={**_hash_of(config), "user": users})


def _hash_of(section: DoorConfig | UserConfig) -> dict[str, str]:
    """Return the fields to change, so that a password in clear text is a hash."""
    text = str.__str__(section.password)
    if not text or text.partition(":")[0] in REFERENCES:
        return {}
    return {"password": "", "password_hash": HiddenText(password_hash(text).hex())}


def _kept(password: str, hashed: str) -> bytes | None:
    """SHA1(SHA1(password)); None: no password is set. Raises ConfigError."""
    if hashed:
        return parsed_hash(secret(hashed))
    return password_hash(secret(password)) if password else None
