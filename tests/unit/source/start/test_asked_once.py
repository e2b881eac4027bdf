"""A decision about many cursors asks a server no more than one about one."""

from __future__ import annotations

from dataclasses import replace

from ray_canal.source.start.asked_once import AskedOnce
from ray_canal.source.start.decision import decide
from ray_canal.source.start.log_file import Log
from tests.unit.source.start.test_decision import ServersLog, cursor, source
from tests.unit.source.start.test_own_log import place_of


class Counting(ServersLog):
    """Counts what it is asked."""

    asked = 0

    def executed(self) -> str:
        self.asked += 1
        return super().executed()


def test_a_start_with_many_cursors_asks_as_often_as_with_one() -> None:
    place = place_of()
    counts = []
    for number in (1, 50):
        log = Counting()
        cursors = [cursor(replace(place, row=n)) for n in range(number)]
        assert decide(source(), cursors, log).same_log
        counts.append(log.asked)
    assert counts[0] == counts[1] <= 3


def test_each_answer_is_the_logs() -> None:
    log = ServersLog()
    asked: Log = AskedOnce(log)
    for _ in range(2):
        assert asked.identity == log.identity
        assert asked.is_mariadb == log.is_mariadb
        assert asked.files() == log.files()
        assert asked.end() == log.end()
        assert asked.executed() == log.executed()
        assert asked.known_gtids() == log.known_gtids()
        assert asked.purged() == log.purged()
        assert asked.offsets_max() == log.offsets_max()
        assert asked.takes_gtid_sets() == log.takes_gtid_sets()
        assert asked.leaves_rows_out() == log.leaves_rows_out()
        name = log.files()[0][0]
        assert next(asked.chunks(name, 4096)).head == next(log.chunks(name, 4096)).head
