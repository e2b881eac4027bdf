"""Compare names of tables and databases as a server does: its `lower_case_table_names`.

0: as they are written. 1 and 2: in lower case, which DDL in the log is not written in, but
TABLE_MAP events, and with 1 the catalog, are. Lower case is that of utf8mb3_general_ci, the
character set of identifiers: one character of the basic plane for one, as of Unicode 3.0. MySQL
5.6 to 9.7 and MariaDB 10.11 to 11.8 agree on it (tests/integration/test_letter_case.py); Python's
str.lower() knows hundreds of letters more.
"""

from __future__ import annotations

from typing import Final

Name = tuple[str, str]
"""(schema, table)."""

_FOLDS: Final = (
    # first, last, step, distance to the lower-case letter
    (0x0041, 0x005A, 1, 32),
    (0x00C0, 0x00D6, 1, 32), (0x00D8, 0x00DE, 1, 32), (0x0100, 0x012E, 2, 1),
    (0x0130, 0x0130, 1, -199), (0x0132, 0x0136, 2, 1), (0x0139, 0x0147, 2, 1),
    (0x014A, 0x0176, 2, 1), (0x0178, 0x0178, 1, -121), (0x0179, 0x017D, 2, 1),
    (0x0181, 0x0181, 1, 210), (0x0182, 0x0184, 2, 1), (0x0186, 0x0186, 1, 206),
    (0x0187, 0x0187, 1, 1), (0x0189, 0x018A, 1, 205), (0x018B, 0x018B, 1, 1),
    (0x018E, 0x018E, 1, 79), (0x018F, 0x018F, 1, 202), (0x0190, 0x0190, 1, 203),
    (0x0191, 0x0191, 1, 1), (0x0193, 0x0193, 1, 205), (0x0194, 0x0194, 1, 207),
    (0x0196, 0x0196, 1, 211), (0x0197, 0x0197, 1, 209), (0x0198, 0x0198, 1, 1),
    (0x019C, 0x019C, 1, 211), (0x019D, 0x019D, 1, 213), (0x019F, 0x019F, 1, 214),
    (0x01A0, 0x01A4, 2, 1), (0x01A6, 0x01A6, 1, 218), (0x01A7, 0x01A7, 1, 1),
    (0x01A9, 0x01A9, 1, 218), (0x01AC, 0x01AC, 1, 1), (0x01AE, 0x01AE, 1, 218),
    (0x01AF, 0x01AF, 1, 1), (0x01B1, 0x01B2, 1, 217), (0x01B3, 0x01B5, 2, 1),
    (0x01B7, 0x01B7, 1, 219), (0x01B8, 0x01B8, 1, 1), (0x01BC, 0x01BC, 1, 1),
    (0x01C4, 0x01C4, 1, 2), (0x01C5, 0x01C5, 1, 1), (0x01C7, 0x01C7, 1, 2), (0x01C8, 0x01C8, 1, 1),
    (0x01CA, 0x01CA, 1, 2), (0x01CB, 0x01DB, 2, 1), (0x01DE, 0x01EE, 2, 1), (0x01F1, 0x01F1, 1, 2),
    (0x01F2, 0x01F4, 2, 1), (0x01F6, 0x01F6, 1, -97), (0x01F7, 0x01F7, 1, -56),
    (0x01F8, 0x021E, 2, 1), (0x0222, 0x0232, 2, 1), (0x0386, 0x0386, 1, 38),
    (0x0388, 0x038A, 1, 37), (0x038C, 0x038C, 1, 64), (0x038E, 0x038F, 1, 63),
    (0x0391, 0x03A1, 1, 32), (0x03A3, 0x03AB, 1, 32), (0x03DA, 0x03EE, 2, 1),
    (0x0400, 0x040F, 1, 80), (0x0410, 0x042F, 1, 32), (0x0460, 0x0480, 2, 1),
    (0x048C, 0x04BE, 2, 1), (0x04C1, 0x04C3, 2, 1), (0x04C7, 0x04C7, 1, 1), (0x04CB, 0x04CB, 1, 1),
    (0x04D0, 0x04F4, 2, 1), (0x04F8, 0x04F8, 1, 1), (0x0531, 0x0556, 1, 48), (0x1E00, 0x1E94, 2, 1),
    (0x1EA0, 0x1EF8, 2, 1), (0x1F08, 0x1F0F, 1, -8), (0x1F18, 0x1F1D, 1, -8),
    (0x1F28, 0x1F2F, 1, -8), (0x1F38, 0x1F3F, 1, -8), (0x1F48, 0x1F4D, 1, -8),
    (0x1F59, 0x1F5F, 2, -8), (0x1F68, 0x1F6F, 1, -8), (0x1F88, 0x1F8F, 1, -8),
    (0x1F98, 0x1F9F, 1, -8), (0x1FA8, 0x1FAF, 1, -8), (0x1FB8, 0x1FB9, 1, -8),
    (0x1FBA, 0x1FBB, 1, -74), (0x1FBC, 0x1FBC, 1, -9), (0x1FC8, 0x1FCB, 1, -86),
    (0x1FCC, 0x1FCC, 1, -9), (0x1FD8, 0x1FD9, 1, -8), (0x1FDA, 0x1FDB, 1, -100),
    (0x1FE8, 0x1FE9, 1, -8), (0x1FEA, 0x1FEB, 1, -112), (0x1FEC, 0x1FEC, 1, -7),
    (0x1FF8, 0x1FF9, 1, -128), (0x1FFA, 0x1FFB, 1, -126), (0x1FFC, 0x1FFC, 1, -9),
    (0x2126, 0x2126, 1, -7517), (0x212A, 0x212A, 1, -8383), (0x212B, 0x212B, 1, -8262),
    (0x2160, 0x216F, 1, 16), (0x24B6, 0x24CF, 1, 26), (0xFF21, 0xFF3A, 1, 32),
)  # fmt: skip
_LOWER: Final = {
    code: code + distance
    for first, last, step, distance in _FOLDS
    for code in range(first, last + 1, step)
}


def lowered(name: str) -> str:
    """A name as servers with lower_case_table_names of 1 or 2 compare it."""
    return name.lower() if name.isascii() else name.translate(_LOWER)


class Names:
    """One server's names. `setting` is its lower_case_table_names; None: it is not known (binlog
    files), then names are compared as they are written, and what may be meant by a name in other
    letters is not known any more."""

    def __init__(self, setting: int | None = None) -> None:
        self.setting = setting

    def one(self, name: str) -> str:
        """A schema's name as it is compared."""
        return lowered(name) if self.setting else name

    def pair(self, name: Name) -> Name:
        """A table's name as it is compared."""
        return (lowered(name[0]), lowered(name[1])) if self.setting else name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self.setting == other.setting

    def __hash__(self) -> int:
        return hash(self.setting)

    def __repr__(self) -> str:
        return f"Names({self.setting})"
