"""Texts of errors that a destination tells its subscribers."""

from __future__ import annotations

from ray_canal.destination import failures
from ray_canal.errors import PositionPurged
from ray_canal.model.subscription import new_client_id


def test_an_error_names_its_subscribers_and_how_to_remove_them() -> None:
    error = PositionPurged("mysql-bin.000001 is gone")
    told = failures.about_subscribers(error, "orders", (12, 3))
    assert isinstance(told, PositionPurged)
    assert "subscriber 3, 12: mysql-bin.000001 is gone" in str(told)
    assert "`ray-canal unsubscribe orders CLIENT_ID`" in str(told)
    assert "subscriber" not in str(error), "the failure itself stays as it was"


def test_an_error_in_status_begins_with_its_kind() -> None:
    assert failures.error_text(ValueError("no")) == "ValueError: no"


def test_an_ephemeral_subscriber_is_told_that_it_may_have_ended() -> None:
    assert "ephemeral" not in str(failures.not_subscribed_error(7))
    assert "ephemeral" in str(failures.not_subscribed_error(new_client_id()))
