"""Chromium and its driver: the machine's own, else Debian's out of their tree of packages.

Chromium starts its children by its own path, so it cannot be run through a tree's own loader as the
servers are: its libraries are found by LD_LIBRARY_PATH, and the C library is the machine's, which
must be as new as Debian 12's.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.fetch import fetch_tree, locked

_C_LIBRARY = re.compile(
    r"(ld-linux-x86-64|libBrokenLocale|libanl|libc|libdl|libm|libmvec|libnsl|libnss_\w+|libpthread"
    r"|libresolv|librt|libthread_db|libutil)\.so\.\d+"
)
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir>{root}/usr/share/fonts</dir>
<include ignore_missing="yes">{root}/usr/share/fontconfig/conf.avail/60-latin.conf</include>
<cachedir>{root}/../fontcache</cachedir>
</fontconfig>
"""


@dataclass(frozen=True)
class Chromium:
    """Paths of browser and driver, and what their environment has beyond the test's own."""

    program: str
    driver: str
    environment: dict[str, str] = field(default_factory=dict)


def chromium() -> Chromium:
    """Return what there is on this machine, else fetch it. Raises FetchError."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if program and driver:
        return Chromium(program, driver)
    root = fetch_tree("chromium") / "root"
    fonts = root.parent / "fonts.conf"
    with locked("chromium-prepared"):
        if not fonts.exists():
            for folder in _library_folders(root):
                for path in folder.iterdir():
                    if _C_LIBRARY.fullmatch(path.name):
                        path.unlink()
            fonts.write_text(_FONTS.format(root=root), encoding="utf-8")
    libraries = [*_library_folders(root), root / "usr" / "lib" / "chromium"]
    libraries.append(root / "usr" / "lib" / "x86_64-linux-gnu" / "pulseaudio")
    environment = {
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "FONTCONFIG_FILE": str(fonts),
        "XDG_DATA_DIRS": str(root / "usr" / "share"),
    }
    return Chromium(
        str(root / "usr" / "lib" / "chromium" / "chromium"),
        str(root / "usr" / "bin" / "chromedriver"),
        {**os.environ, **environment},
    )


def _library_folders(root: Path) -> list[Path]:
    return [root / name / "x86_64-linux-gnu" for name in ("usr/lib", "lib")]
