"""Names of tables as names of folders: a table may be named `../x`, or with what means something in
an address."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^\w.$@ -]")
_WRITTEN = re.compile(r"(?:~[0-9a-f]{2})+")


def folder_of(name: str) -> str:
    """Return the folder of a database or table: its name, with `~` and two hexadecimal digits for
    each byte of a character other than letters, digits, blanks and any of `_.$@-`."""
    if name in (".", ".."):
        return name.replace(".", "~2e")
    return _ODD.sub(lambda odd: "".join(f"~{byte:02x}" for byte in odd[0].encode()), name)


def name_in(folder: str) -> str:
    """Return the name whose folder this is."""
    return _WRITTEN.sub(
        lambda found: bytes.fromhex(found[0].replace("~", "")).decode("utf-8", "replace"), folder
    )
