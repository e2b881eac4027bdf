"""Frames of a store process's local socket, and who may be at its ends.

    frame     4 bytes of length, little-endian, then a pickle; an empty one cancels the call
    call      (destination, method, arguments)
    answer    (DONE, value) | (FAILED, error) | (KEPT, number): collected by a call of Ray's

The socket is Linux's abstract kind: it has no file, ends with its process, and is seen in its own
network namespace alone. Both ends refuse one that another user has, for what comes is unpickled.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
from typing import Any

from ray_canal.actors.ray_internals import Untracked
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.model.message import MessageHead

DONE, FAILED, KEPT = 0, 1, 2
CANCEL = b"\0\0\0\0"
HEAD_BYTES = 4
IS_AVAILABLE = sys.platform == "linux"
_LENGTH = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def framed(value: Any) -> bytes:
    """Return a value as a frame."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def body_bytes(head: bytes | bytearray | memoryview) -> int:
    """Return the length of the frame that begins so."""
    found: int = _LENGTH.unpack_from(head)[0]
    return found


def is_portable(answer: Any) -> bool:
    """Return whether an answer can leave Ray: it has no references that Ray has to track."""
    parts = answer.parts if isinstance(answer, MessageHead) else ()
    return all(isinstance(part.payload, DecodedChunk | Untracked) for part in parts)


def is_same_user(end: Any) -> bool:
    """Return whether the process at the other end of a socket is this user's."""
    found = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(found)[1]
    return uid == os.geteuid()
