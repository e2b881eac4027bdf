"""The table of differences: every entry in which we differ from Canal, one by one, with the defect
of Canal that explains it.

`differences.tsv` has five columns: the case; the event's offset; which of the entries with that
offset; the defect (docs/reference/canal-compat.md describes it, defects.py checks it); what
differs. Offset `*` is the whole case: Canal's entries name another file. The test compares the
table with what is found now, both ways. To write it again: `python -m tests.golden.differences
[PART OF A CASE]`; it refuses what no defect explains.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ray_canal.errors import DecodeError
from tests.golden.compare import Case, cases, differences
from tests.golden.defects import explain

TABLE = Path(__file__).parent / "differences.tsv"
HEAD = "# case\toffset\tentry\tdefect\tdiffers\n"

Line = tuple[str, str, str, str, str]


def committed() -> dict[str, list[Line]]:
    """The table's lines by case."""
    found: dict[str, list[Line]] = {}
    for text in TABLE.read_text("utf-8").splitlines():
        if not text.startswith("#"):
            case, offset, entry, defect, differs = text.split("\t")
            found.setdefault(case, []).append((case, offset, entry, defect, differs))
    return found


def found_now(case: Case) -> list[Line]:
    """The lines that this case has now. A difference without a defect has `?` for one."""
    lines: list[Line] = []
    name = case.canal_journal_name()
    if name != case.binlog:
        lines.append((str(case), "*", "*", "journal-name", "header.logfileName"))
    for pair in differences(case.ours(name), case.canal()):
        by_defect: dict[str, list[str]] = {}
        for aspect in pair.aspects:
            by_defect.setdefault(explain(case, pair, aspect) or "?", []).append(aspect)
        place = (str(case), str(pair.position), str(pair.number))
        lines += [(*place, name, "; ".join(by_defect[name])) for name in sorted(by_defect)]
    return lines


def main(part: str) -> int:
    """Write the table's lines of the cases whose name has `part` in it. 1: some are unexplained."""
    table = committed() if TABLE.exists() else {}
    unexplained = 0
    for case in cases():
        if part not in str(case):
            continue
        try:
            lines = found_now(case)
        except DecodeError as error:
            sys.stderr.write(f"{case}: {error}\n")
            continue
        for line in lines:
            if line[3] == "?":
                unexplained += 1
                sys.stderr.write("\t".join(line) + "\n")
        table[str(case)] = [line for line in lines if line[3] != "?"]
    texts = ["\t".join(line) + "\n" for name in sorted(table) for line in table[name]]
    TABLE.write_text(HEAD + "".join(texts), "utf-8")
    return int(unexplained > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
