"""Reading the rows that tables hold: `python -m benchmarks.snapshot`, see __main__.py."""
