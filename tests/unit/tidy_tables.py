"""Tables that test_tidy.py holds: limits of size, banned words, modules without their own test.

Exceptions only shrink: take out what is within the limit again.
"""

from __future__ import annotations

MODULE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 8

LONG_MODULES: dict[str, int] = {}

LONG_FUNCTIONS: dict[str, int] = {}

OPTIONS_ARE_PARAMETERS = ("ray_canal/cli/", "jobs/", "benchmarks/")
"""Here a parameter is an option of a command."""

MANY_PARAMETERS: dict[str, int] = {}

BANNED_NAMES = {
    "utils.py": "name the module after what lives there",
    "util.py": "name the module after what lives there",
    "helpers.py": "name the module after what lives there",
    "common.py": "name the module after what lives there",
    "misc.py": "name the module after what lives there",
}

BANNED_WORDS = (
    # folder, pattern, what to do instead
    ("ray_canal/actors", r"\bray\.put\(", "return it: what is put in an actor dies with the actor"),
    ("ray_canal", r"\bwait_for\(", "`wait_with_timeout` of destination/wakeup.py"),
    ("ray_canal", r"\bbreakpoint\(|\bpdb\b", "remove it"),
    ("ray_canal", r"\bfromisoformat\(", "`iso_time` of config/times.py"),
    ("ray_canal", r"\bassert (?!.* is not None\b|isinstance\()", "raise an error of errors.py"),
    ("ray_canal", r"\bexcept:\s*$", "name the exceptions"),
    ("ray_canal", r"(?<![.\w])print\(", "the command line echoes, the rest logs"),
)
OF_LATER_PYTHONS = (
    # what Python 3.10 lacks and no type checker tells
    r"\.to_bytes\((?!.*(big|little|order))",
    r"\blocalcontext\(\w+=",
    r"\blogging\.(StreamHandler|LoggerAdapter)\[",
    r"\basyncio\.(timeout|timeout_at|TaskGroup|Runner|Barrier)\(",
    r"\bfrom datetime import .*\bUTC\b|\bdatetime\.UTC\b|\bExceptionGroup\(",
    r"\bfrom (enum|typing) import .*\b(StrEnum|Self|Unpack|NotRequired|assert_never|override)\b",
)
BANNED_BUT_HERE = {
    ("config/times", r"\bfromisoformat\("),
    ("actors/runtime", r"\bray\.put\("),  # in the process whose log it is
}

TESTED_ELSEWHERE = {
    # module: the test that holds it, when that is not tests/unit/ROOM/test_MODULE.py
    "demo/in_spark": "tests/integration/test_cli.py",
    "meta/mysql": "tests/integration/test_meta_servers.py",
    "meta/schema_mysql": "tests/integration/test_meta_servers.py",
    "meta/schema_redis": "tests/integration/test_meta_servers.py",
    "meta/redis": "tests/integration/test_meta_servers.py",
    "kernels/render/entry_bytes": "tests/golden/test_entries.py",
    "kernels/render/entry_rows": "tests/golden/test_entries.py",
    "kernels/render/flat_messages": "tests/golden/test_flat.py",
}

WITHOUT_TEST = {
    # module: why it needs none. This list only shrinks.
    "kernels/base/codes": "constants",
    "binlog/chunk": "record layouts; every test that decodes uses them",
    "binlog/parsed": "record layouts",
    "destination/state": "a dataclass without behaviour",
    "model/arrays": "names of types",
    "model/table_meta": "a dataclass without behaviour",
    "model/table_event": "tuples without behaviour",
    "model/start": "a dataclass without behaviour",
    "model/message": "a dataclass without behaviour",
    "server/ports": "a protocol without behaviour",
}
