"""Fixture: canal-python from PyPI in a virtual environment of its own, made once per machine.

It needs protobuf < 3.21, which cannot live beside ours. If it cannot be installed, the test fails:
what is not run is not tested.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

_PACKAGES = ("canal-python==0.4", "protobuf==3.20.3")
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_FOLDER = Path.home() / ".cache" / "ray_canal" / "clients" / f"canal-python-0.4-py{_VERSION}"


@pytest.fixture(scope="session")
def canal_python() -> Path:
    """The Python in whose environment `import canal` is the public client."""
    python = _FOLDER / "bin" / "python"
    done = _FOLDER / ".installed"
    if not done.exists():
        venv.create(_FOLDER, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *_PACKAGES]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if result.returncode:
            pytest.fail(f"{' '.join(command)}\n{result.stderr}")
        done.touch()
    return python
