"""What the store makes of failures: errors of ours, deaths that pass, bugs that are shown."""

from __future__ import annotations

from ray.exceptions import ActorDiedError, ObjectLostError, RayTaskError, WorkerCrashedError

from ray_canal.actors.answers import unwrap_ray_error
from ray_canal.errors import CorruptEvent, InstanceNotRunning


def task_error(cause: Exception) -> Exception:
    error: Exception = RayTaskError("f", "traceback", cause).as_instanceof_cause()
    return error


def test_our_errors_come_out_of_any_number_of_tasks() -> None:
    corrupt = CorruptEvent("bad length")
    assert unwrap_ray_error(corrupt) is corrupt
    assert unwrap_ray_error(task_error(corrupt)) is corrupt
    assert unwrap_ray_error(task_error(task_error(corrupt))) is corrupt


def test_deaths_are_retryable_wherever_they_are_noticed() -> None:
    for death in (ActorDiedError(), WorkerCrashedError(), ObjectLostError("00", None, "")):
        for error in (death, task_error(death), task_error(task_error(death))):
            found = unwrap_ray_error(error)
            assert isinstance(found, InstanceNotRunning), error
            assert found.retryable
            assert str(found) == f"a stage of the pipeline died: {type(death).__name__}"


def test_a_bug_is_shown_as_it_is() -> None:
    bug = task_error(ValueError("a bug"))
    assert unwrap_ray_error(bug) is bug
