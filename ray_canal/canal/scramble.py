"""MySQL 4.1's password challenge, as Canal's clients answer it: scramble411.

The server keeps SHA1(SHA1(password)), sends a random seed, and the client proves that it knows
SHA1(password):

    answer = SHA1(password) xor SHA1(seed + SHA1(SHA1(password)))

On the wire the answer is written in hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import hmac

from ray_canal.errors import ConfigError

SEED_BYTES = 8
_HASH_BYTES = 20


def _sha1(data: bytes) -> bytes:
    # What the protocol prescribes; that is why the port offers TLS.
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def password_hash(password: str) -> bytes:
    """SHA1(SHA1(password)): what a server keeps in place of the password."""
    return _sha1(_sha1(password.encode()))


def parsed_hash(text: str) -> bytes:
    """A kept hash from its 40 hexadecimal digits (Canal's canal.passwd), MySQL's leading `*`
    allowed.

    Raises ConfigError; the text is in no message.
    """
    try:
        value = bytes.fromhex(text.strip().removeprefix("*"))
    except ValueError:
        value = b""
    if len(value) != _HASH_BYTES:
        raise ConfigError(
            "server.password_hash: expected the 40 hexadecimal digits of SHA1(SHA1(password)), as "
            "SELECT SHA1(UNHEX(SHA1('secret'))) gives them"
        )
    return value


def scramble411(password: str, seed: bytes) -> bytes:
    """A client's answer to a seed."""
    stage = _sha1(password.encode())
    return _xor(stage, _sha1(seed + _sha1(stage)))


def accepts(kept: bytes, seed: bytes, answer: bytes) -> bool:
    """Return whether an answer in hexadecimal digits proves the password behind a kept hash."""
    try:
        proof = bytes.fromhex(answer.decode("ascii"))
    except ValueError:  # also a byte that is not ASCII
        return False
    if len(proof) != _HASH_BYTES:
        return False
    return hmac.compare_digest(_sha1(_xor(proof, _sha1(seed + kept))), kept)
