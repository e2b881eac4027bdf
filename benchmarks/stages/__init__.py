"""One row's way from its commit to a client, stage by stage: `python -m benchmarks.stages`."""
