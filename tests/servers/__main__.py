"""`python -m tests.servers fetch [KIND…]`: download the test servers; `run KIND`: start one by
hand.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers import KINDS, OTHER_BUILDS, FetchError, cache_dir, fetch, start
from tests.servers.fetch import TOOLS, fetch_axe, fetch_tansu, fetch_tree

_AT_ONCE = 4


def main(arguments: list[str]) -> int:
    command, kinds = (arguments or [""])[0], arguments[1:]
    builds = (*KINDS, *OTHER_BUILDS)
    unknown = [kind for kind in kinds if kind not in builds]
    if command not in ("fetch", "run") or unknown or (command == "run" and len(kinds) != 1):
        print(f"usage: python -m tests.servers fetch [{'|'.join(builds)}]… | run KIND")
        return 2
    try:
        wanted: dict[str, Callable[[], Path]] = {}
        if not kinds:  # the largest first
            wanted = {tool: functools.partial(fetch_tree, tool) for tool in reversed(TOOLS)}
            wanted |= {"axe": fetch_axe, "tansu": fetch_tansu}
        wanted |= {kind: functools.partial(fetch, kind) for kind in kinds or builds}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            fetched = {name: pool.submit(call) for name, call in wanted.items()}
            for name, folder in fetched.items():
                print(f"{name}: {folder.result()}", flush=True)
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
