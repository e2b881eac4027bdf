"""Lines of the log: JSON, ids of the task, names of events."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from ray_canal.config import load
from ray_canal.logs import ids_here, iso_time, tell, with_ids, with_process_ids, write_to_stderr

logger = logging.getLogger("ray_canal.tests")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The session's other tests log as ever."""
    root = logging.getLogger("ray_canal")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_an_event_is_a_line_with_the_ids_of_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    async def life(name: str, epoch: int) -> None:
        with_ids(destination=name)
        await asyncio.sleep(0)
        tell(logger, "state", "%s is %s", name, "running", state="running", epoch=epoch)
        await asyncio.to_thread(logger.warning, "from a thread: %s", "ü")

    async def lives() -> None:
        await asyncio.gather(life("orders", 7), life("crm", 8))

    write_to_stderr("json")
    asyncio.run(lives())
    found = lines(capsys)
    assert {(each["destination"], each["message"]) for each in found} == {
        ("orders", "orders is running"), ("crm", "crm is running"),
        ("orders", "from a thread: ü"), ("crm", "from a thread: ü"),
    }  # fmt: skip
    told = next(each for each in found if each["message"] == "orders is running")
    assert told["event"] == "state"
    assert told["epoch"] == 7
    assert told["level"] == "info"
    assert str(told["time"]).endswith("Z")


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_stderr("json", "warning")
    logger.info("not told")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("it failed")
    (line,) = lines(capsys)
    assert "two\nlines" in str(line["traceback"])


def test_it_is_set_once(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_stderr("json")
    write_to_stderr("text")
    tell(logger, "subscriber", "once", client_id=7)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO ray_canal.tests: once [client_id=7]")


def test_the_section() -> None:
    tree = {"instance": [{"destination": "a", "source": {"files": ["f"]}}]}
    assert load(tree).log is None
    config = load({**tree, "log": {"format": "json"}}).log
    assert config is not None
    assert (config.format, config.level) == ("json", "info")


def test_times() -> None:
    assert iso_time(0.5) == "1970-01-01T00:00:00.500Z"


def test_a_process_that_works_for_one_destination_names_it_in_all_threads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_to_stderr("json")
    with_process_ids(destination="orders", epoch=7)
    try:
        thread = threading.Thread(target=logger.warning, args=("from a thread",))
        thread.start()
        thread.join()
        (line,) = lines(capsys)
        assert (line["destination"], line["epoch"]) == ("orders", 7)
        assert ids_here() == {"destination": "orders", "epoch": 7}
    finally:
        with_process_ids()
