"""Hostile binlogs against the decoder: `python -m tests.fuzz` (docs/explanation/testing.md)."""
