"""python -m tests.fuzz [--inputs N] [--seed S] [--jobs J]; --replay N [--write FILE] for one.

`--kernels`: checked (bounds checks, three minutes to compile, once), shipped (what users run, where
an index out of range may end the process), plain (Python, where it is an error; a third as fast).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from pathlib import Path

KERNELS = {
    "checked": {"NUMBA_BOUNDSCHECK": "1"},
    "shipped": {},
    "plain": {"NUMBA_DISABLE_JIT": "1"},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=20_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--kernels", choices=KERNELS, default="checked")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    parser.add_argument("--replay", type=int, default=None, metavar="N", help="only input N")
    parser.add_argument("--write", type=Path, default=None, help="with --replay: its bytes go here")
    given = parser.parse_args()
    os.environ.update(KERNELS[given.kernels])  # numba reads them when it is imported, further down
    seed = random.SystemRandom().randrange(1 << 31) if given.seed is None else given.seed
    if given.replay is not None:
        return _replay(seed, given.replay, given.write)
    return _run(seed, given)


def _replay(seed: int, number: int, path: Path | None) -> int:
    from tests.fuzz import oracle
    from tests.fuzz.corpus import MAGIC

    if path is not None:
        piece, hostile = oracle.input_of(seed, number)
        path.write_bytes(MAGIC + hostile.data)
        print(f"{path}: {piece.name}, {hostile.what}, schema: {piece.schema_sql or 'none'}")
    print(oracle.check(seed, number))
    return 0


def _run(seed: int, given: argparse.Namespace) -> int:
    from tests.fuzz.runner import run

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it with a summary
    last = given.first + given.inputs
    print(f"seed {seed}, inputs {given.first} … {last - 1}, {given.jobs} processes", flush=True)
    result = run(
        seed, given.first, last, given.jobs, given.failures, lambda text: print(text, flush=True)
    )
    for failure in result.failures:
        print(f"\ninput {failure.number}: {failure.text.strip().splitlines()[-1]}")
        again = f"--kernels {given.kernels} --seed {seed} --replay {failure.number}"
        print(f"again: python -m tests.fuzz {again} --write FILE")
    print(
        f"{result.inputs:,} inputs in {result.seconds:.0f} s ({result.answers:,} answers, the rest "
        f"errors), {len(result.failures)} failures, RSS at most {result.rss_bytes_max >> 20} MiB"
    )
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
