"""Workers of pytest-xdist share the work of preparing the tests' files.

Each worker collects all files, in the same order at the same time: where none of them has been run
yet, each would rewrite every file's asserts and compile it. So each imports its part of the files
first, and finds the others' compiled.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import every nth file. One that cannot be imported is told when it is collected."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in _files(session.config)[number::count]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.with_suffix("").parts))


def _files(config: pytest.Config) -> list[Path]:
    """Return the files to collect that are modules of a package, as paths from the root."""
    root = config.rootpath
    left_out = [Path(path).resolve() for path in config.getoption("ignore") or ()]
    found: list[Path] = []
    for argument in config.args:
        path = Path(argument.partition("::")[0]).resolve()
        found += [path] if path.is_file() else path.rglob("test_*.py")
    return [
        path.relative_to(root)
        for path in sorted(set(found))
        if (path.parent / "__init__.py").exists()
        and not any(path.is_relative_to(other) for other in left_out)
    ]
