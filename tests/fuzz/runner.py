"""Worker processes and who watches them: a crash or a hang is told by the input's number."""

from __future__ import annotations

import logging
import multiprocessing as mp
import os
import queue
import resource
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any

import psutil  # type: ignore[import-untyped]

SECONDS_EACH = 120.0
"""Of CPU. An input takes milliseconds; what is not done in this time hangs. (A kernel that no
intact piece needs may still have to be compiled.)"""
MEMORY_ROOM_BYTES = 1 << 30
"""Address space that one input may take beyond what the process has when it is warm."""


@dataclass(frozen=True, slots=True)
class Failure:
    number: int
    text: str


@dataclass(slots=True)
class Result:
    inputs: int
    answers: int
    failures: list[Failure]
    seconds: float
    rss_bytes_max: int


def _work(
    seed: int, first: int, step: int, last: int, now: SynchronizedArray[Any], lane: int, out: Any
) -> None:
    """Inputs first, first + step …; `now` says which one is at work, and since which of the CPU
    seconds of this process."""
    from tests.fuzz import oracle

    logging.disable(logging.CRITICAL)  # tables that hostile DDL leaves unknown
    oracle.warm_up()
    out.put(("ready", lane, 0, 0))
    _limit_memory()
    done = answers = 0
    for number in range(first, last, step):
        now[2 * lane], now[2 * lane + 1] = number, time.process_time()
        try:
            answers += oracle.check(seed, number).endswith("an answer")
        except Exception:
            out.put(("wrong", lane, number, traceback.format_exc()))
        done += 1
        if done % 200 == 0:
            out.put(("done", lane, done, answers))
            done = answers = 0
    out.put(("done", lane, done, answers))
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    now[2 * lane] = -1
    out.put(("end", lane, usage, 0))


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as statm:
        used = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_ROOM_BYTES,) * 2)


def run(
    seed: int, first: int, last: int, jobs: int, failures_max: int, report: Callable[[str], None]
) -> Result:
    """Inputs [first, last) of a seed, in `jobs` processes."""
    context = mp.get_context("spawn")
    now = context.Array("d", [-1.0] * (2 * jobs))
    out = context.Queue()
    started = time.monotonic()
    result = Result(0, 0, [], 0.0, 0)

    def start(lane: int, at: int) -> Any:
        worker = context.Process(
            target=_work, args=(seed, at, jobs, last, now, lane, out), daemon=True
        )
        worker.start()
        return worker

    workers, waiting = {0: start(0, first)}, range(1, jobs)
    told = started
    try:
        while workers and len(result.failures) < failures_max:
            try:
                kind, lane, number, more = out.get(timeout=1.0)
            except queue.Empty:
                kind, lane, number, more = "none", -1, 0, 0
            if kind == "ready" and waiting:  # it has compiled everything, the others find it there
                workers.update({k: start(k, first + k) for k in waiting})
                waiting = range(0)
            elif kind == "done":
                result.inputs, result.answers = result.inputs + number, result.answers + more
            elif kind == "wrong":
                result.failures.append(Failure(number, more))
                report(f"input {number}:\n{more}")
            elif kind == "end":
                result.rss_bytes_max = max(result.rss_bytes_max, number)
                workers.pop(lane).join()
            for lane in list(workers):
                _watch(lane, workers, now, jobs, start, result, report)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                seconds, failures = told - started, len(result.failures)
                undone = min((int(now[2 * lane]) for lane in workers), default=last)
                report(
                    f"{result.inputs:,} inputs in {seconds:.0f} s, {failures} failures; "
                    f"to go on from here: --first {max(first, undone)}"
                )
    except KeyboardInterrupt:
        report("interrupted")
    finally:
        for worker in workers.values():
            worker.kill()
    result.seconds = time.monotonic() - started
    return result


def _cpu_seconds(pid: int) -> float:
    try:
        used = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:  # its exit code tells, next time
        return 0.0
    return float(used.user + used.system)


def _watch(
    lane: int,
    workers: dict[int, Any],
    now: SynchronizedArray[Any],
    jobs: int,
    start: Callable[[int, int], Any],
    result: Result,
    report: Callable[[str], None],
) -> None:
    """A worker that died or hangs is a failure; another goes on behind its input."""
    number, since = int(now[2 * lane]), now[2 * lane + 1]
    worker = workers[lane]
    if number < 0:
        if worker.exitcode:
            raise RuntimeError(f"a worker ended before its first input: {worker.exitcode}")
        return
    if worker.exitcode is not None:
        text = f"the process died with exit code {worker.exitcode}"
    elif _cpu_seconds(worker.pid) - since > SECONDS_EACH:
        text = f"no end after {SECONDS_EACH:.0f} s of CPU"
        worker.kill()
        worker.join()
    else:
        return
    result.failures.append(Failure(number, text))
    report(f"input {number}: {text}")
    now[2 * lane] = -1
    workers[lane] = start(lane, number + jobs)
