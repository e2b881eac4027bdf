"""`python -m tests.fault --minutes 60 --seed 1 --decoders 0`: a long fault run (`make fault`)."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fault.faults import FAULTS, SINK_FAULTS
from tests.fault.pair import pair
from tests.fault.pair_faults import PAIR_FAULTS
from tests.fault.pair_run import PairRun
from tests.fault.run import DATABASE, FaultRun
from tests.fault.sinks import DatabaseMirror, FaultSink, LakeLog
from tests.servers import start

IMPOSSIBLE = (
    "gtid-mode other than ON needs --single (two servers replicate by GTID), and sinks need "
    "binlog-row-image=FULL: leave out --mirror"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--decoders", type=int, default=0, help="0: fused; else decode tasks")
    parser.add_argument("--per-process", type=int, default=1, help="0: fetchers have a process")
    parser.add_argument("--kinds", default="", help="only these, with commas; `list` shows them")
    parser.add_argument("--single", action="store_true", help="one server, no standby")
    parser.add_argument("--server", default="mysql97", help="of this kind: mysql56, mariadb")
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE",
        help=f"of the servers' options; {IMPOSSIBLE}",
    )
    parser.add_argument(
        "--mirror", metavar="SERVER", help="sinks, too: a mirror in this kind of server, a lake"
    )
    parser.add_argument("--keep", type=Path, help="leave logs and journals in this folder")
    given = parser.parse_args()
    options = dict(each.split("=", maxsplit=1) for each in given.set)
    if refusal := refused(options, single=given.single, mirror=bool(given.mirror)):
        sys.exit(refusal)
    known = {**(FAULTS if given.single else PAIR_FAULTS), **(SINK_FAULTS if given.mirror else {})}
    kinds = [kind for kind in known if kind in _split(given.kinds)]
    if unknown := set(_split(given.kinds)) - set(known):
        sys.exit(f"no kind {', '.join(sorted(unknown))}; there are:\n" + "\n".join(known))
    print(
        f"seed {given.seed}, decoders {given.decoders}, "
        f"{'one' if given.single else 'two'} of {given.server}, {given.per_process} to a process",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sinks: list[FaultSink] = []
        if given.mirror:
            target = stack.enter_context(start(given.mirror, folder / "target"))
            sinks = [DatabaseMirror(target), LakeLog(folder / "lake", DATABASE)]
        more: Any = {
            "decoders": given.decoders, "per_process": given.per_process, "sinks": sinks,
        }  # fmt: skip
        run: FaultRun
        if given.single:
            server = stack.enter_context(start(given.server, folder / "server", options))
            run = FaultRun(server, folder, given.seed, **more)
        else:
            meta = stack.enter_context(start("mysql97", folder / "cursors"))
            servers = stack.enter_context(pair(folder, given.server, options))
            run = PairRun(servers, meta, folder, given.seed, **more)
        with run:
            run.random_faults(60 * given.minutes, kinds)
            run.judge()
        print(run.report(), flush=True)


def refused(options: Mapping[str, str], *, single: bool, mirror: bool) -> str:
    """Return why a run with these options of the servers cannot be, or ""."""
    given = {name.replace("_", "-").lower(): value.upper() for name, value in options.items()}
    without_gtids = given.get("gtid-mode", "ON") not in ("ON", "1")
    partial = given.get("binlog-row-image", "FULL") != "FULL"
    return IMPOSSIBLE if (without_gtids and not single) or (partial and mirror) else ""


def _split(text: str) -> list[str]:
    return [kind.strip() for kind in text.split(",") if kind.strip()]


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: everything is stopped, nothing was judged")
