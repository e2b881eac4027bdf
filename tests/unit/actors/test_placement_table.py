"""How many destinations share a process, and which one takes the next."""

from __future__ import annotations

import pytest

from ray_canal.actors.placement_table import Home, PlacementRecord, home_for, joined_home, share_of


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


def place_of(home: Home) -> PlacementRecord:
    return PlacementRecord(home.process, home.share, '{"node": "any"}', "", node=home.node)


def test_processes_fill_one_after_the_other() -> None:
    places: dict[str, PlacementRecord] = {}
    for name in "abcde":
        places[name] = place_of(home_for(name, places, 2, "store:"))
    by_process: dict[str, str] = {}
    for name, place in places.items():
        by_process[place.process] = by_process.get(place.process, "") + name
    assert sorted(by_process.values()) == ["ab", "cd", "e"]
    # What was stopped makes room; who has a process of its own shares it with nobody.
    freed = places.pop("c").process
    places["own"] = place_of(home_for("own", places, 0, "store:"))
    assert places["own"].process == "store:own"
    assert home_for("f", places, 2, "store:") == Home(freed, 2)


def test_each_node_has_processes_of_its_own() -> None:
    one, two = "1" * 56, "2" * 56
    places: dict[str, PlacementRecord] = {}
    for name, node in zip("abcdef", (one, two, one, two, one, ""), strict=True):
        places[name] = place_of(home_for(name, places, 2, "store:", node))
    processes = {name: place.process for name, place in places.items()}
    assert processes["a"] == processes["c"] != processes["b"] == processes["d"]
    assert len(set(processes.values())) == 4
    assert processes["f"] == "store:shared:0"
    assert home_for("x", places, 1, "store:", one) == Home("store:x@111111111111", 1, one)


def test_a_place_moves_with_all_that_it_says() -> None:
    place = place_of(Home("store:x", 1))
    moved = place.at(Home("store:x@2", 1, "2"))
    assert (moved.process, moved.node, moved.shared) == ("store:x@2", "2", True)
    assert moved.instance_json == place.instance_json
    assert not moved.selector.head
    assert PlacementRecord("store:x", 0, "{}", "").selector.head


def test_who_has_lost_its_process_joins_one_that_runs_up_to_twice_its_share() -> None:
    one, two = "1" * 56, "2" * 56
    places: dict[str, PlacementRecord] = {}
    assert joined_home(places, 2, one) is None
    for name, node in zip("abcd", (one, one, one, two), strict=True):
        places[name] = place_of(home_for(name, places, 2, "store:", node))
    emptier, full = places["c"].process, places["a"].process
    assert joined_home(places, 1, one) is None  # each has a process of its own
    joined = []
    for name in "efghij":
        home = joined_home(places, 2, one)
        joined.append(home and home.process)
        places[name] = place_of(home or home_for(name, places, 2, "store:", one))
    assert joined[:5] == [emptier, full, emptier, full, emptier]
    assert joined[5] is None
    assert places["j"].process not in (emptier, full)
