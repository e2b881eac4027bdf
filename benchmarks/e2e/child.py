"""A process that reads rows and prints lines (benchmarks/e2e/peers), started with a mark."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any

from benchmarks.e2e.processes import MARK, marked
from ray_canal.actors.ray_settings import RAY_SETTINGS

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """Of a child. Several processes of this machine join a cluster; they share no token of Ray's,
    and it listens on loopback alone."""
    ray = {"RAY_AUTH_MODE": "disabled", **RAY_SETTINGS}
    return {**os.environ, "PYTHONPATH": str(ROOT), **ray, **more}


class ChildFailed(Exception):
    """A reader ended, or said nothing for too long; the message has its last words."""


class Child:
    """A started process, `more` in its environment. As a context manager it ends with its block,
    and so does all that it started."""

    def __init__(self, command: list[str], folder: Path | None = None, **more: str) -> None:
        self.mark = uuid.uuid4().hex
        self.address = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.process = subprocess.Popen(
            command,
            cwd=folder or ROOT,
            env=environment(**{MARK: self.mark, **more}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # other things that a library prints
                said = json.loads(line)
                if isinstance(said, dict) and "at" in said:
                    self._lines.put(said)
        self._lines.put(None)

    def tell(self, task: dict[str, Any]) -> None:
        """One line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()

    def wait(self, at: str, timeout_s: float) -> dict[str, Any]:
        """The next line of that kind. Raises ChildFailed."""
        while True:
            try:
                said = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                words = f"nothing for {timeout_s:.0f} s\n{self.last_words()}"
                raise ChildFailed(words) from None
            if said is None:
                raise ChildFailed(f"ended before {at!r}: {self.last_words()}")
            if said["at"] == at:
                return said
            if said["at"] == "end":
                raise ChildFailed(f"done before {at!r}: too few rows to measure, scale up")

    def last_words(self) -> str:
        """The end of its standard error."""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return "\n".join(text.splitlines()[-6:]) or "no message"

    def pids(self) -> list[int]:
        """It, and all that it started."""
        return marked(self.mark)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(15.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in self.pids():  # only what carries this mark, so what it started
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        self._reader.join(5.0)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
