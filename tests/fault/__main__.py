"""`python -m tests.fault --minutes 60 --seed 1 --decoders 0`: a long fault run (`make fault`)."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.fault.run import FaultRun
from tests.servers import start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--decoders", type=int, default=0, help="0: fused; else decode tasks")
    parser.add_argument("--per-process", type=int, default=1, help="0: fetchers have a process")
    parser.add_argument("--server", default="mysql97")
    parser.add_argument("--keep", type=Path, help="leave logs and journals in this folder")
    given = parser.parse_args()
    print(
        f"seed {given.seed}, decoders {given.decoders}, {given.server}, "
        f"{given.per_process} to a process",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with start(given.server, folder / "server") as server:
            run = FaultRun(
                server, folder, given.seed, given.decoders, per_process=given.per_process
            )
            with run:
                run.random_faults(60 * given.minutes)
                run.judge()
            print(run.report(), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: everything is stopped, nothing was judged")
