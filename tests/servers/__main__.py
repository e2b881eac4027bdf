"""`python -m tests.servers fetch [KIND…]`: download the test servers; `run KIND`: start one by
hand.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.servers import KINDS, OTHER_BUILDS, FetchError, cache_dir, fetch, start
from tests.servers.fetch import fetch_tree


def main(arguments: list[str]) -> int:
    command, kinds = (arguments or [""])[0], arguments[1:]
    builds = (*KINDS, *OTHER_BUILDS)
    unknown = [kind for kind in kinds if kind not in builds]
    if command not in ("fetch", "run") or unknown or (command == "run" and len(kinds) != 1):
        print(f"usage: python -m tests.servers fetch [{'|'.join(builds)}]… | run KIND")
        return 2
    try:
        for kind in kinds or builds:
            print(f"{kind}: {fetch(kind)}", flush=True)
        if not kinds:
            print(f"redis: {fetch_tree('redis')}", flush=True)
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if command == "run":
        with tempfile.TemporaryDirectory() as folder, start(kinds[0], Path(folder)) as server:
            print(
                f"{kinds[0]} at {server.host}:{server.port}, root without password; Enter stops it"
            )
            sys.stdin.readline()
    else:
        print(f"test servers are in {cache_dir()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
