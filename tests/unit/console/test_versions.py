"""What the page shows of a table's versions."""

from __future__ import annotations

from ray_canal.console.versions import versions

ID, NOTE, LONG_NOTE = ("id", "int"), ("note", "varchar(9)"), ("note", "text")


def change(position: int, kind: str, columns: tuple[tuple[str, str], ...] | None, sql: str = ""
) -> dict[str, object]:
    return {
        "journal_name": "bin.000001", "position": position, "recorded_at": 1.0, "kind": kind,
        "sql": sql, "columns": columns, "problem": "",
    }  # fmt: skip


def test_the_newest_comes_first_with_what_it_changed() -> None:
    gone, altered, first = versions(
        [
            change(4, "snapshot", (ID, NOTE)),
            change(900, "ddl", (ID, LONG_NOTE), "alter table t modify note text"),
            change(1000, "ddl", None, "drop table t"),
        ]
    )
    assert first.how == "read from the catalog"
    assert first.columns == (("same", *ID), ("same", *NOTE))
    assert altered.place == "bin.000001:900"
    assert altered.columns == (("same", *ID), ("added", *LONG_NOTE), ("dropped", *NOTE))
    assert gone.gone
    assert [each[0] for each in gone.columns] == ["dropped", "dropped"]
    assert versions([]) == []
