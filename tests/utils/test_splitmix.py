import numpy as np

from lookalike.utils.jit import kernel
from lookalike.utils.splitmix import STEP, splitmix64

PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]


def test_numbers_are_the_published_ones():
    states = np.uint64(1234567) + STEP * np.arange(1, 6, dtype=np.uint64)
    assert splitmix64(states).tolist() == PUBLISHED
    compiled = kernel(splitmix64)
    assert [int(compiled(state)) for state in states] == PUBLISHED
