"""The fetcher actor: a destination/fetcher.py `Fetcher` in a process of its own."""

from __future__ import annotations

from ray_canal.actors.log_settings import StageActor
from ray_canal.actors.priority import as_ray_itself
from ray_canal.config import InstanceConfig, kept_secrets
from ray_canal.destination import fetcher
from ray_canal.malloc import give_up_unused


class FetcherActor(StageActor, fetcher.Fetcher):
    """Named as what Ray shows of the process."""

    def __init__(self, instance_json: str, fused: bool) -> None:
        as_ray_itself()
        super().__init__(InstanceConfig.model_validate_json(instance_json), fused)

    def remember(self, told: dict[str, str]) -> None:
        """Take the secrets that the configuration refers to."""
        kept_secrets.remember(told)

    def alive(self) -> None:
        """Answer, and give memory back that nobody has used for a while."""
        give_up_unused()
