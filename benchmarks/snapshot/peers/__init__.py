"""Programs that run in a peer's own environment."""
