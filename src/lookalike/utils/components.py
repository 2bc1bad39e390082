"""Find connected components of rows that share members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lookalike.utils.arrays import Array


def connected_rows(members: Array) -> Array:
    """Label rows so that rows which share a member, directly or through other rows, have the same label.

    Args:
        members: Integers `[n, columns]`. Equal integers are the same member, in whichever column they stand; give the
            columns different ranges of integers if they hold different kinds of members.

    Returns:
        The smallest row number of each row's component, int64 `[n]`.

    Examples:
        >>> import numpy as np
        >>> connected_rows(np.array([[5, 6], [6, 7], [8, 9], [9, 9]])).tolist()
        [0, 0, 2, 2]
    """
    values, places = np.unique(members, return_inverse=True)
    places = places.reshape(members.shape)
    labels = np.arange(len(members))
    while True:
        least = np.full(len(values), len(labels))
        np.minimum.at(least, places, labels[:, None])
        smallest = least[places].min(axis=1)
        if np.array_equal(smallest, labels):
            return labels
        parents = labels.copy()
        np.minimum.at(parents, labels, smallest)  # a whole component moves at once, or long chains would take forever
        while not np.array_equal(labels, parents):
            labels, parents = parents, parents[parents]
