"""Helpers for every layer: input checks, files, locks, ranks, progress, numba."""
