"""Marks for tests: random ones of every kind, and what they should come to."""

from hypothesis import strategies as st


def marks(n):
    """Draw pairs of ids below n: none, repetitions, self pairs and chains among them."""
    ids = st.integers(0, n - 1)
    return st.lists(st.tuples(ids, ids), max_size=n)


def groups(same, labels):
    """Return a representative per sample, by joining one pair after another; equal labels are one from the start."""
    group = list(labels)
    for first, second in same:
        low, high = sorted((group[first], group[second]))
        group = [low if each == high else each for each in group]
    return group
