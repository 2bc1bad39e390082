"""What every layer uses: input checks, files, locks, ranks, progress, numba."""
