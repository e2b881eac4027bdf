"""A TCP proxy in this process that cuts connections, stalls them, or refuses new ones."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from types import TracebackType

_BUFFER_BYTES = 64 << 10
_TICK_S = 0.05


class Proxy:
    """`address` is host:port in front of `target`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flowing = threading.Event()
        self._flowing.set()
        self._closed = threading.Event()
        self._refuses = False
        self._flips, self._flips_left = b"", 0
        self._cuts: list[int] = []
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Reset every connection, as a firewall does that forgot them."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _close(*pair)

    def cut_behind(self, *bytes_to_target: int) -> None:
        """Cut a connection when it has carried so many bytes to the target; one number per cut."""
        self._cuts = list(bytes_to_target)

    def _is_cut(self, carried: int) -> bool:
        with self._lock:
            if not self._cuts or carried < self._cuts[0]:
                return False
            del self._cuts[0]
        return True

    def refuse(self, refuses: bool) -> None:
        """End connections as soon as they are made, as long as it is on."""
        self._refuses = refuses
        if refuses:
            self.cut()

    def flip(self, text: bytes, times: int) -> None:
        """Change a bit of this text where it comes from the target, so many times."""
        self._flips, self._flips_left = text, times

    def _flipped(self, data: bytes) -> bytes:
        at = data.find(self._flips) if self._flips_left else -1
        if at < 0:
            return data
        self._flips_left -= 1
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    def retarget(self, target: tuple[str, int]) -> None:
        """Lead new connections to another server; those that there are stay where they are."""
        self._target = target

    def stall(self, stalled: bool) -> None:
        """Connections stay open and nothing passes, as on a network that drops packets."""
        if stalled:
            self._flowing.clear()
        else:
            self._flowing.set()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                _close(client)
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target, timeout=5)
            server.settimeout(None)
        except OSError:
            _close(client)
            return
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        try:
            self._carry(client, server)
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                self._pairs.discard(pair)
            _close(*pair)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        carried = 0
        while not self._closed.is_set():
            if not self._flowing.wait(_TICK_S):
                continue
            ready, _, _ = select.select([client, server], [], [], _TICK_S)
            for one in ready:
                data = one.recv(_BUFFER_BYTES)
                if not data:
                    return
                self._flowing.wait()
                carried += len(data) if one is client else 0
                if self._is_cut(carried):
                    return
                other[one].sendall(data if one is client else self._flipped(data))

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._flowing.set()
        _close(self._listener)
        self.cut()


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
