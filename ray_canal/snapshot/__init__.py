"""The rows that tables hold now: read without a lock, at a known place of the log."""
