"""Canal's sqlType: the numbers of java.sql.Types that it gives to column values."""

from __future__ import annotations

from typing import Final

BIT: Final = -7
TINYINT: Final = -6
BIGINT: Final = -5
CHAR: Final = 1
DECIMAL: Final = 3
INTEGER: Final = 4
SMALLINT: Final = 5
REAL: Final = 7
DOUBLE: Final = 8
VARCHAR: Final = 12
DATE: Final = 91
TIME: Final = 92
TIMESTAMP: Final = 93
OTHER: Final = 1111
BLOB: Final = 2004
CLOB: Final = 2005
