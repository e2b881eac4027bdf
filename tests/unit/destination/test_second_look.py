"""A corrupt event of a server is read once more before it counts; one of a file is not."""

from __future__ import annotations

from ray_canal.config import SourceConfig
from ray_canal.destination.second_look import SecondLook
from ray_canal.errors import ConnectionLost, CorruptEvent, SourceError


def corrupt(position: int) -> CorruptEvent:
    error = CorruptEvent("wrong checksum")
    error.journal_name, error.position = "mysql-bin.000001", position
    return error


def test_each_place_of_a_server_gets_one_second_look() -> None:
    look = SecondLook(SourceConfig(address="127.0.0.1:3306"))
    assert isinstance(look.at(corrupt(4), reading=True), ConnectionLost)
    again = corrupt(4)
    assert look.at(again, reading=True) is again
    assert isinstance(look.at(corrupt(8), reading=True), ConnectionLost)


def test_a_file_is_what_it_is() -> None:
    look = SecondLook(SourceConfig(files=("mysql-bin.000001",)))
    error = corrupt(4)
    assert look.at(error, reading=True) is error


def test_a_server_that_ends_a_dump_says_nothing_about_the_cursors_yet() -> None:
    look = SecondLook(SourceConfig(address="127.0.0.1:3306"))
    refused = SourceError("could not find first log file name in binary log index file")
    assert isinstance(look.at(refused, reading=True), ConnectionLost)
    assert look.at(refused, reading=False) is refused
    other = ValueError("a defect")
    assert look.at(other, reading=True) is other
