"""Tables that test_tidy.py holds: limits of size with their exceptions, banned words.

Exceptions only shrink: take out what is within the limit again.
"""

from __future__ import annotations

MODULE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 8

LONG_MODULES = {
    "tests/integration/test_driver.py": 500,
    "tests/unit/test_tidy.py": 520,  # its tables of rooms and tests
}

LONG_FUNCTIONS = {
    "ray_canal/cli/decode.py decode": 64,  # an option a line
    "tests/integration/test_log_identity.py test_canals_cursors_are_tied_to_their_server": 62,
}

OPTIONS_ARE_PARAMETERS = ("ray_canal/cli/", "jobs/", "benchmarks/")
"""Here a parameter is an option of a command."""

MANY_PARAMETERS = {
    # Module: the most parameters of one of its functions: keyword arguments of the public API.
    "ray_canal/client/connector.py": 9,
    "ray_canal/spark/stream.py": 11,
}

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
    ("ray_canal", r"\bassert (?!.* is not None\b|isinstance\()", "raise an error of errors.py"),
    ("ray_canal", r"\bexcept:\s*$", "name the exceptions"),
    ("ray_canal", r"(?<![.\w])print\(", "the command line echoes, the rest logs"),
)
BANNED_BUT_HERE = {
    ("actors/runtime", r"\bray\.put\("),  # in the process whose log it is
}
