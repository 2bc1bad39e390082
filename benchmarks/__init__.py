"""Benchmarks: each is run as `python -m benchmarks.NAME` and writes `benchmarks/results/NAME.json`."""
