"""A webhook: notices as signed JSON by HTTP POST, in order, each tried again until it arrives.

Headers: `X-Ray-Canal-Delivery`, the same for every attempt of one notice; `X-Ray-Canal-Timestamp`,
seconds since the epoch; `X-Ray-Canal-Signature`, `sha256=` and the HMAC in hex of the timestamp, a
dot and the body, where a secret is given.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

from ray_canal.proxies import http_opener

logger = logging.getLogger(__name__)

_WAITING_MAX = 1000
_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 60.0
_PASSES = (408, 425, 429)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is refused: it would turn the notice into a GET without its body, at an address
    that the configuration does not name."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = http_opener(_NoRedirect())


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return what a receiver compares with the header, by hmac.compare_digest."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


class Webhook:
    """Sends in a thread of its own. A notice that does not arrive in `retry_s`, and one that is
    refused for good (4xx, a redirect), is given up, and the log says so. `url` and `secret` are
    asked each time, so that they may change where they are kept; both raise ConfigError."""

    def __init__(
        self,
        url: Callable[[], str],
        secret: Callable[[], str],
        *,
        timeout_s: float,
        retry_s: float,
        pause_min_s: float = _PAUSE_MIN_S,
    ) -> None:
        self._url = url
        self._secret = secret
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._pause_min_s = pause_min_s
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(_WAITING_MAX)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def send(self, notice: dict[str, Any]) -> None:
        """Send it when those before it have arrived or were given up."""
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            logger.error("the webhook does not keep up; given up: %s", json.dumps(notice))

    def close(self) -> None:
        """End now, whatever waits."""
        self._ended.set()
        self._thread.join(self._timeout_s)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                notice = self._waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            self._deliver(notice)

    def _deliver(self, notice: dict[str, Any]) -> None:
        body, delivery = json.dumps(notice).encode(), uuid.uuid4().hex
        deadline, pause_s = time.monotonic() + self._retry_s, self._pause_min_s
        while not self._ended.is_set():
            problem, passes = self._posted(body, delivery)
            if not problem:
                return
            if not passes or time.monotonic() + pause_s > deadline:
                logger.error("the webhook was not reached (%s); given up: %s", problem, body)
                return
            self._ended.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _posted(self, body: bytes, delivery: str) -> tuple[str, bool]:
        """Return what went wrong (empty: nothing), and whether it may pass."""
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "ray-canal",
            "X-Ray-Canal-Delivery": delivery,
            "X-Ray-Canal-Timestamp": timestamp,
        }
        try:
            secret = self._secret()
            if secret:
                headers["X-Ray-Canal-Signature"] = signature(secret, timestamp, body)
            url = self._url()
            if not url.startswith(("http://", "https://")):
                return "its url is none of http or https", False
            request = urllib.request.Request(url, body, headers, method="POST")
            with _OPENER.open(request, timeout=self._timeout_s) as answer:
                answer.read(1 << 16)
            return "", False
        except urllib.error.HTTPError as error:
            error.close()
            return f"HTTP {error.code}", error.code >= 500 or error.code in _PASSES
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__, True  # its text may hold the URL, which is a secret
        except Exception as error:
            return type(error).__name__, False
