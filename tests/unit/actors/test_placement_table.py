"""How many destinations share a process, and which one takes the next."""

from __future__ import annotations

import pytest

from ray_canal.actors.placement_table import Place, process_for, share_of


@pytest.mark.parametrize(
    ("wanted", "destinations", "cpus", "share"),
    [
        ("auto", 1, 1, 1),
        ("auto", 2, 2, 1),
        ("auto", 1, 4, 1),
        ("auto", 1, 5, 0),
        ("auto", 8, 8, 0),
        ("auto", 9, 8, 2),
        ("auto", 3, 2, 2),
        ("auto", 50, 2, 25),
        ("auto", 5, 0, 5),
        (0, 50, 2, 0),
        (1, 1, 2, 1),
        (50, 3, 64, 50),
    ],
)
def test_share(wanted: int | str, destinations: int, cpus: int, share: int) -> None:
    assert share_of(wanted, destinations, cpus) == share


def test_processes_fill_one_after_the_other() -> None:
    places: dict[str, Place] = {}
    for name in "abcde":
        process = process_for(name, places, 2, "store:")
        places[name] = Place(process, True, "", "")
    by_process: dict[str, str] = {}
    for name, place in places.items():
        by_process[place.process] = by_process.get(place.process, "") + name
    assert sorted(by_process.values()) == ["ab", "cd", "e"]
    # What was stopped makes room; who has a process of its own shares it with nobody.
    freed = places.pop("c").process
    places["own"] = Place(process_for("own", places, 0, "store:"), False, "", "")
    assert places["own"].process == "store:own"
    assert process_for("f", places, 2, "store:") == freed
