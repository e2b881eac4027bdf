"""The scripts for `ray job submit`, as far as they need no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("[a-z]*.py"))


@pytest.mark.parametrize("job", JOBS, ids=[job.stem for job in JOBS])
def test_no_job_shows_its_variables(job: Path) -> None:
    """C7: an unexpected error prints none into `ray job logs`, whatever typer's default is (older
    ones show them)."""
    text = job.read_text(encoding="utf-8")
    assert "typer.run(" not in text
    assert "pretty_exceptions_show_locals=False" in text

