"""Times as people write them in settings and commands."""

from __future__ import annotations

import datetime as dt
import re


def iso_time(text: str) -> dt.datetime:
    """Return a time of ISO 8601, such as 2026-10-01T08:00:00.5Z. Raises ValueError.

    Python 3.10 takes neither Z nor fractions of other than 3 or 6 digits by itself.
    """
    text = re.sub(r"[Zz]$", "+00:00", text.strip())
    text = re.sub(r"(?<=:\d\d)\.(\d{1,6})\d*", lambda found: "." + found[1].ljust(6, "0"), text)
    return dt.datetime.fromisoformat(text)
