"""What runs, comparisons, analyses and benchmarks left on disk, read, checked and typed."""
