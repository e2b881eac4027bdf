"""Runs a sink again and again, and dies by SIGKILL where it is told: a program for tests.

    python -m tests.sink_runs FOLDER SINK.json DESTINATION.json STEP…

A STEP is `METHOD:COUNT:before|after|flushed`: the process that runs the sink kills itself before or
after the COUNTth call of this method of the database or lake, of the sink, or of Kafka's producer.
*flushed* is before it, once Kafka's brokers have all messages that were sent. `MS` kills it after
so many milliseconds. Each step is a process of its own, forked where all code is loaded. The last
process runs to the end of the binlog files. Prints how each of them ended.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray_canal.config import SinkConfig
from ray_canal.sinks.lakes import file_shares
from ray_canal.sinks.open import make_sink
from ray_canal.sinks.queues.kafka import KafkaSink
from ray_canal.sinks.queues.kafka_producer import MessageProducer
from ray_canal.sinks.queues.librdkafka import BatchProducer
from tests.in_process_sink import destination, runner_of


def killed(
    folder: Path, config: SinkConfig, source: dict[str, Any], steps: Sequence[str]
) -> list[str]:
    """Run a sink of the destination `x` as above, killed at each of the steps, then to the end.
    Returns how each run ended: "-9", and "0" for the last."""
    (folder / "sink.json").write_text(config.model_dump_json())
    (folder / "instance.json").write_text(json.dumps({"source": source, "tsdb": {}}))
    done = subprocess.run(
        [sys.executable, "-m", "tests.sink_runs", folder, folder / "sink.json",
         folder / "instance.json", *steps],
        capture_output=True, text=True, timeout=3000, check=False,
    )  # fmt: skip
    print(done.stdout, done.stderr[-3000:])  # shown where a test fails
    for path in sorted(folder.glob("failed-*.txt")):
        print(path.name, path.read_text(), sep="\n")
    assert done.returncode == 0
    return [line.split()[1] for line in done.stdout.splitlines()]


def random_steps(
    *methods: str, calls_max: int = 3, whens: Sequence[str] = ("before", "after")
) -> list[str]:
    """Return KILLS (100) steps at which to kill, the same in each run of a test: at one of the
    first calls of one of the methods, which each commit makes. (A moment would come after a fast
    sink's end.)"""
    kills = int(os.environ.get("KILLS", "100"))
    generator = random.Random(kills)
    return [
        f"{generator.choice(methods)}:{generator.randint(1, calls_max)}:{generator.choice(whens)}"
        for _ in range(kills)
    ]


def without_repeats(found: list[Any]) -> list[Any]:
    """Each once; what comes again begins at an earlier message and goes on without a gap."""
    taken: list[Any] = []
    at = 0
    for message in found:
        if at < len(taken) and taken[at] == message:
            at += 1
        elif at == len(taken) and message not in taken:
            taken.append(message)
            at += 1
        else:
            at = taken.index(message) + 1
    return taken


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(call: Callable[..., Any], count: int, when: str) -> Callable[..., Any]:
    numbers = itertools.count(1)  # several threads may call

    def called(*arguments: Any) -> Any:
        number = next(numbers)
        if number == count and when == "flushed":
            producer = getattr(arguments[0], "_connected", arguments[0])
            assert producer.flush(30) == 0
        if number == count and when != "after":
            die()
        answer = call(*arguments)
        if number == count and when == "after":
            die()
        return answer

    return called


def classes_of(sink: Any, method: str) -> Sequence[type[Any]]:
    """Return the classes whose method a step names."""
    if isinstance(sink, KafkaSink) and not hasattr(sink, method):
        return BatchProducer, MessageProducer
    return (type(getattr(sink, "_database", None) or getattr(sink, "_lake", sink)),)


def run(folder: Path, config: SinkConfig, instance: dict[str, Any], step: str) -> None:
    file_shares._SHARE_ROWS = 1  # small commits are shared, too
    sink: Any = make_sink(config)
    if ":" in step:
        method, count, when = step.split(":")
        for target in classes_of(sink, method):
            setattr(target, method, deadly(getattr(target, method), int(count), when))
    elif step:
        threading.Timer(int(step) / 1000, die).start()
    with destination(folder, **instance):
        runner_of(config, sink).run(threading.Event())


def main(folder: str, sink: str, instance: str, *steps: str) -> None:
    config = SinkConfig.model_validate(json.loads(Path(sink).read_text()))
    options = json.loads(Path(instance).read_text())
    for number, step in enumerate((*steps, "")):
        began, child = time.monotonic(), os.fork()
        if not child:
            code = 1
            try:
                run(Path(folder), config, options, step)
                code = 0
            except BaseException:
                text = f"{step or 'end'}\n{traceback.format_exc()}"
                (Path(folder) / f"failed-{number}.txt").write_text(text)
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(step or "end", os.waitstatus_to_exitcode(status), f"{time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
