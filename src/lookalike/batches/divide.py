"""The numba kernels that divide pairs into parts: clusters of neighbours together, labels as `fill` will need them.

A batch holds each label once, so a part with B batches takes at most B pairs of a label; and if there are A batches in
the parts after it, a label with more than A pairs left gives the surplus to this part: that many of them are *due*. It
is the rule by which `fill` fills a batch, one level up, and for the same reason it never needs repair.
"""

from typing import Any, NamedTuple

from lookalike.utils.jit import kernel

LEVELS = 64  # of the priority queue
EDGES = 8  # nearest neighbours of a pair that draw their clusters into its part
REACH = 4096  # pairs that a part grows by before it starts anew beside them: otherwise hubs would draw it everywhere
FREE, TAKEN = 0, 1

GAIN, LEVEL, SCALE, SEEN = 0, 1, 2, 3  # columns of `Division.clusters`: edges into the part, level in the queue, ...
ROOM, DUE, OWN, DRAWN, QUEUED, TOUCHED = 0, 1, 2, 3, 4, 5  # of `Division.counts`, for the current part


class Division(NamedTuple):
    """What is divided, and working memory."""

    cluster: Any  # int32 [n]
    begin: Any  # int32 [num_clusters]: where the members of a cluster that are not taken begin
    end: Any  # int32 [num_clusters]
    members: Any  # int32 [n]: by cluster
    towards: Any  # int32 [n, EDGES]: the clusters of each member's nearest neighbours; -1: its own, or none
    clusters: Any  # int32 [num_clusters, 4]; columns above
    touched: Any  # int32 [num_clusters]: those with a gain
    heads: Any  # int32 [LEVELS]: as in `fill`
    entries: Any  # int32 [capacity, 2]
    status: Any  # int8 [n]: FREE or TAKEN; left out pairs are TAKEN from the start
    labels: Any  # int32 [n], or [0]: every pair has its own
    left: Any  # int32 [num_labels]: pairs still to take
    given: Any  # int32 [num_labels, 2]: how many the last part took that took any, and which part
    large: Any  # int32: labels with enough pairs to be due before the last part
    of_label: Any  # int32 [n]: pairs by label
    of_label_begin: Any  # int32 [num_labels]: as for clusters
    counts: Any  # int64 [6]
    pairs: Any  # int32 [total] out: part after part, in each first its own and then the drawn ones


@kernel
def look_around(near: Any, cluster: Any, members: Any, first: int, last: int, towards: Any) -> None:
    """Write `Division.towards` for members first..last-1: gathered by threads, it is read in one go."""
    for m in range(first, last):
        i = members[m]
        for slot in range(EDGES):
            towards[m, slot] = -1
            if slot < near.shape[1] and near[i, slot] >= 0:
                c = cluster[near[i, slot]]
                if c != cluster[i]:
                    towards[m, slot] = c


@kernel
def _admit(division: Division, i: int, part: int, batches: int, after: int, drawn: bool) -> bool:
    """Take a pair if its label may enter the part, and say whether it did."""
    counts = division.counts
    if len(division.labels):
        label = division.labels[i]
        if division.given[label, 1] != part:
            division.given[label, 0], division.given[label, 1] = 0, part
        due = 0 < after < division.left[label]
        if division.given[label, 0] >= batches or (not due and counts[ROOM] <= counts[DUE]):
            return False
        division.left[label] -= 1
        division.given[label, 0] += 1
        counts[DUE] -= due
    counts[ROOM] -= 1
    if drawn:
        counts[DRAWN] -= 1
        division.pairs[counts[DRAWN]] = i
    else:
        division.pairs[counts[OWN]] = i
        counts[OWN] += 1
    division.status[i] = TAKEN
    return True


@kernel
def _attract(division: Division, m: int, part: int) -> None:
    """Raise the priority of the clusters of a member's neighbours."""
    clusters, counts = division.clusters, division.counts
    for slot in range(EDGES):
        c = division.towards[m, slot]
        if c < 0 or clusters[c, SEEN] == part:
            continue
        if clusters[c, GAIN] == 0:
            division.touched[counts[TOUCHED]] = c
            counts[TOUCHED] += 1
        clusters[c, GAIN] += 1
        level = min(LEVELS - 1, (clusters[c, GAIN] * clusters[c, SCALE]) >> 16)
        if level != clusters[c, LEVEL]:
            entry = counts[QUEUED]
            division.entries[entry, 0], division.entries[entry, 1] = c, division.heads[level]
            division.heads[level], clusters[c, LEVEL] = entry, level
            counts[QUEUED] = entry + 1


@kernel
def _most_attracted(division: Division) -> int:
    """Return the queued cluster with most edges from the part for its size, or -1."""
    for level in range(LEVELS - 1, -1, -1):
        while division.heads[level] >= 0:
            c, before = division.entries[division.heads[level]]
            division.heads[level] = before
            if division.clusters[c, LEVEL] == level:
                return int(c)
    return -1


@kernel
def _take_cluster(division: Division, c: int, part: int, batches: int, after: int) -> None:
    """Take the free pairs of a cluster, as far as labels and room allow."""
    division.clusters[c, SEEN], division.clusters[c, LEVEL] = part, -1
    contiguous = True
    for m in range(division.begin[c], division.end[c]):
        if division.counts[ROOM] <= division.counts[DUE]:
            return
        i = division.members[m]
        if division.status[i] == FREE and _admit(division, i, part, batches, after, False):
            _attract(division, m, part)
        contiguous = contiguous and division.status[i] != FREE
        if contiguous:
            division.begin[c] = m + 1


@kernel
def _take_due(division: Division, part: int, batches: int, after: int) -> None:
    """Take the pairs that are due."""
    for at in range(len(division.large)):
        label = division.large[at]
        while division.left[label] > after:
            i = division.of_label[division.of_label_begin[label]]
            division.of_label_begin[label] += 1
            if division.status[i] != TAKEN:
                _admit(division, i, part, batches, after, False)


@kernel
def _next_seed(division: Division, order: Any, position: int, part: int) -> int:
    """Return the next position in `order` of a free pair whose cluster this part has not seen, or the end."""
    while position < len(order):
        i = order[position]
        if division.status[i] == FREE and division.clusters[division.cluster[i], SEEN] != part:
            break
        position += 1
    return position


@kernel
def _forget(division: Division) -> None:
    """Empty the queue: a new part begins."""
    counts = division.counts
    for t in range(counts[TOUCHED]):
        c = division.touched[t]
        division.clusters[c, LEVEL], division.clusters[c, GAIN] = -1, 0
    division.heads[:] = -1
    counts[QUEUED], counts[TOUCHED] = 0, 0


@kernel
def divide(
    division: Division,
    order: Any,  # int32 [n]: the pairs, shuffled
    batches: Any,  # int64 [parts]: how many each has
    starts: Any,  # int64 [parts + 1]: where its pairs begin
    shares: Any,  # int64 [parts]: how many of them are drawn
    own: Any,  # int64 [parts] out: how many of them are not
) -> None:
    """Assign every pair that is not left out to a part."""
    counts, after, front = division.counts, batches.sum(), 0
    for part in range(len(batches)):
        _forget(division)
        after -= batches[part]
        counts[ROOM], counts[DUE] = starts[part + 1] - starts[part], 0
        counts[OWN], counts[DRAWN] = starts[part], starts[part + 1]
        if after > 0:  # in the last part everything is due, and there is room for it
            for at in range(len(division.large)):
                counts[DUE] += max(0, division.left[division.large[at]] - after)
        while front < len(order) and division.status[order[front]] != FREE:
            front += 1
        seed = front
        while seed < len(order) and counts[DRAWN] > starts[part + 1] - shares[part] and counts[ROOM] > counts[DUE]:
            if division.status[order[seed]] == FREE:
                _admit(division, order[seed], part, batches[part], after, True)
            seed += 1
        seed, until = front, counts[OWN] + REACH
        while counts[ROOM] > counts[DUE]:
            c = _most_attracted(division)
            if counts[OWN] >= until:
                _forget(division)
                until = counts[OWN] + REACH
            if c < 0:
                seed = _next_seed(division, order, seed, part)
                if seed == len(order):
                    break
                c = division.cluster[order[seed]]
            _take_cluster(division, c, part, batches[part], after)
        _take_due(division, part, batches[part], after)
        own[part] = counts[OWN] - starts[part]
