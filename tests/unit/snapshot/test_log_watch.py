"""GTIDs of a log up to a place, over binlog files; how one waits that does not get there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.errors import ConnectionLost
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.log_watch import LogWatch
from ray_canal.source.files import BinlogFiles
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.search import Search
from tests.unit.source.start.test_decision import SECOND, THIRD, of_transaction


@pytest.fixture
def watch() -> Iterator[LogWatch]:
    """Of the demo's files, in chunks of several transactions each."""
    files = [str(path) for path in binlog_files()]
    config = {"destination": "x", "source": {"files": files}, "chunk_bytes": 4096}
    source = BinlogFiles(InstanceConfig.model_validate(config))
    source.open(EntryPosition(binlog_files()[0].name, 4))
    found = LogWatch(source, 0.5)
    yield found
    found.close()


def test_it_names_what_lies_before_a_place_and_nothing_behind(watch: LogWatch) -> None:
    """A place in the midst of a chunk, a file's first one, and one behind that."""
    first, _ = of_transaction(SECOND, 5)
    assert watch.up_to(first) == first.gtid != ""
    begin = EntryPosition(THIRD, 4)
    log = FilesLog(binlog_files())
    assert watch.up_to(begin) == Search(log).boundary(THIRD, 4).gtid
    later, _ = of_transaction(THIRD, 3)
    assert watch.up_to(later) == later.gtid
    assert watch.up_to(first) == first.gtid, "what was read stays known"


def test_a_log_that_does_not_get_there_is_told(watch: LogWatch) -> None:
    with pytest.raises(ConnectionLost, match=f"the log does not reach {THIRD}:1099511627776"):
        watch.up_to(EntryPosition(THIRD, 1 << 40))
