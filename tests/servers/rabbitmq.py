"""One real RabbitMQ, from Debian's packages: own folder, node name and ports, on loopback alone.

Erlang is started without its scripts, which know only where a package installs it; the port mapper
daemon that its nodes want is one of our own, and ends with the server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from tests.certificates import make_certificate
from tests.servers.fetch import cache_dir, fetch_tree
from tests.servers.run import free_port, loader


class RabbitServer:
    """`address` is host:port; user and password are guest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._mapper_port, self._own_port = free_port(), free_port(), free_port()
        self.stream_port, self.stream_tls_port = free_port(), free_port()
        self.tls_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, timeout_s: float = 240.0) -> None:
        """Start (again) on the same folder and ports; returns when it answers."""
        tree, rabbit, own = cache_dir() / "rabbitmq", _program_folder(), self.folder
        erlang, programs = _erlang()
        (own / "plugins").write_text("[rabbitmq_stream].")
        certificate, key = make_certificate(own)
        listeners = (
            f'{{tcp_listeners,[{{"127.0.0.1",{self.stream_port}}}]}},'
            f'{{ssl_listeners,[{{"127.0.0.1",{self.stream_tls_port}}}]}}'
        )
        files = f'{{certfile,"{certificate}"}},{{keyfile,"{key}"}}'
        (own / "advanced.config").write_text(
            f"[{{rabbitmq_stream,[{listeners}]}},{{rabbit,[{{ssl_options,[{files}]}},"
            f'{{ssl_listeners,[{{"127.0.0.1",{self.tls_port}}}]}}]}}].'
        )
        environment = {
            **os.environ, "HOME": str(own), "ROOTDIR": str(erlang), "BINDIR": str(programs),
            "EMU": "beam", "PROGNAME": "erl", "ERL_LIBS": str(rabbit / "plugins"),
            "ERL_EPMD_PORT": str(self._mapper_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_HOME": str(rabbit), "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._own_port), "RABBITMQ_MNESIA_BASE": str(own / "data"),
            "RABBITMQ_LOG_BASE": str(own / "log"), "RABBITMQ_CONFIG_FILE": str(own / "none"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(own / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "plugins"), "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(own / "pid"), "LANG": "C.UTF-8",
        }  # fmt: skip
        options = [  # without busy waiting, as its own script has it
            "-sbwt", "none", "-sbwtdcpu", "none", "-sbwtdio", "none",
            "--", "-root", str(erlang), "-bindir", str(programs), "-progname", "erl",
            "--", "-home", str(own), "--", "-noshell", "-noinput",
            "-epmd_port", str(self._mapper_port),
            "-s", "rabbit", "boot", "-boot", "start_sasl", "-syslog", "logger", "[]", "-syslog",
            "syslog_error_logger", "false", "-kernel", "prevent_overlapping_partitions", "false",
            "inet_dist_use_interface", "{127,0,0,1}",
        ]  # fmt: skip
        code = next(path for path in rabbit.glob("plugins/rabbit-*") if path.is_dir()) / "ebin"
        with (own / "rabbitmq.log").open("ab") as log:
            mapper = [
                *loader(tree), str(programs / "epmd"), "-port", str(self._mapper_port),
                "-address", "127.0.0.1",
            ]  # fmt: skip
            self._mapper = subprocess.Popen(mapper, stdout=log, stderr=log, env=environment)
            command = [
                *loader(tree), str(programs / "beam.smp"), *options, "-pa", str(code),
            ]  # fmt: skip
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=own
            )
        self._wait(time.monotonic() + timeout_s)

    def _wait(self, deadline: float) -> None:
        while True:
            try:
                for port in (self.port, self.tls_port, self.stream_port, self.stream_tls_port):
                    socket.create_connection(("127.0.0.1", port), 5).close()
                self.connect().close()
                return
            except (AMQPError, OSError) as error:
                ended = self.process is None or self.process.poll() is not None
                if ended or time.monotonic() > deadline:
                    self.kill()
                    text = (self.folder / "rabbitmq.log").read_text(errors="replace")[:2500]
                    raise RuntimeError(f"RabbitMQ did not start: {error!r}\n{text}") from None
                time.sleep(0.2)

    def control(self, *arguments: str) -> None:
        """Run `rabbitmqctl`."""
        erlang, programs = _erlang()
        rabbit, own = _program_folder(), self.folder
        environment = {
            **os.environ, "HOME": str(own), "ROOTDIR": str(erlang), "BINDIR": str(programs),
            "EMU": "beam", "PROGNAME": "erl", "ERL_LIBS": str(rabbit / "plugins"),
            "RABBITMQ_HOME": str(rabbit), "RABBITMQ_NODENAME": "rabbit@localhost",
            "LANG": "C.UTF-8",
        }  # fmt: skip
        command = [
            *loader(cache_dir() / "rabbitmq"), str(programs / "beam.smp"), "--", "-root",
            str(erlang), "-bindir", str(programs), "-progname", "erl", "--", "-home", str(own),
            "--", "-boot", "no_dot_erlang", "-noshell", "-epmd_port", str(self._mapper_port),
            "-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-escript", "main",
            "rabbitmqctl_escript", "-run", "escript", "start", "-extra",
            str(rabbit / "escript" / "rabbitmqctl"), *arguments,
        ]  # fmt: skip
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)

    @contextlib.contextmanager
    def alarm(self) -> Iterator[None]:
        """Have less free disk than the broker wants: it takes no messages."""
        self.control("set_disk_free_limit", "100000000000000")
        try:
            yield
        finally:
            self.control("set_disk_free_limit", "50000000")

    @contextlib.contextmanager
    def message_bytes_max(self, size: int) -> Iterator[None]:
        """Refuse longer messages, on channels that are opened from now on."""
        setting = "application:{}(rabbit, max_message_size{})."
        self.control("eval", setting.format("set_env", f", {size}"))
        try:
            yield
        finally:
            self.control("eval", setting.format("set_env", ", 134217728"))

    def connect(self) -> pika.BlockingConnection:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self.port, heartbeat=0, blocked_connection_timeout=30, socket_timeout=5
        )
        return pika.BlockingConnection(parameters)

    def kill(self) -> None:
        """SIGKILL: as in a crash."""
        for process in (self.process, self._mapper):
            if process is not None:
                process.kill()
                process.wait()
        self.process = self._mapper = None


def _erlang() -> tuple[Path, Path]:
    """Erlang's folder, and that of its programs."""
    erlang = cache_dir() / "rabbitmq" / "root" / "usr" / "lib" / "erlang"
    return erlang, next(erlang.glob("erts-*")) / "bin"


def _program_folder() -> Path:
    folder = cache_dir() / "rabbitmq" / "root" / "usr" / "lib" / "rabbitmq" / "lib"
    return next(folder.glob("rabbitmq_server-*"))


@contextlib.contextmanager
def start_rabbitmq(folder: Path) -> Iterator[RabbitServer]:
    """A running RabbitMQ in `folder`. Raises FetchError."""
    fetch_tree("rabbitmq")
    folder.mkdir(parents=True, exist_ok=True)
    server = RabbitServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
