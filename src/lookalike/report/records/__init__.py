"""Read, check and type what runs, comparisons, analyses and benchmarks left on disk."""
