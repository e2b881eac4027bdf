"""Hostile binlogs against the decoder: `python -m tests.fuzz` (docs/testing.md)."""
