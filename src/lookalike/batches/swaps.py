"""The numba kernels that swap pairs between batches if that brings more neighbours together."""

from typing import Any

from lookalike.batches.fill import Classes, Graph
from lookalike.utils.jit import kernel

CANDIDATES = 4  # weakest members of a batch that are considered for a swap


@kernel
def _edges_into(graph: Graph, home: Any, i: int, batch: int) -> int:
    count = 0
    for e in range(graph.offsets[i], graph.offsets[i + 1]):
        count += home[graph.edges[e]] == batch
    return count


@kernel
def _holds(classes: Classes, batches: Any, size: int, batch: int, label: int, ignore: int) -> bool:
    """Return whether a batch holds a label in a pair other than `ignore`."""
    for slot in range(size):
        i = batches[batch, slot]
        if i != ignore and classes.labels[i] == label:
            return True
    return False


@kernel
def propose(
    graph: Graph,
    home: Any,  # int32 [n]: the batch of each pair
    sizes: Any,
    batches: Any,
    drawn: Any,  # bool [n]: pairs that stay where they are
    first: int,
    last: int,
    weakest: Any,  # int32 [num_batches, CANDIDATES] out: slots of the pairs with the fewest edges inside
    targets: Any,  # int32 [n] out: the batch that holds more of a pair's neighbours than its own, or -1
    inside: Any,  # int32 [largest]: working memory
    edges_of_batch: Any,  # int32 [num_batches]: working memory, zero
) -> None:
    """Find pairs of batches first..last-1 with more neighbours elsewhere, and whom to swap them for; change nothing."""
    for batch in range(first, last):
        for c in range(CANDIDATES):
            weakest[batch, c] = -1
        for slot in range(sizes[batch]):
            i = batches[batch, slot]
            target = batch
            for e in range(graph.offsets[i], graph.offsets[i + 1]):
                other = home[graph.edges[e]]
                if other >= 0:
                    edges_of_batch[other] += 1
                    if edges_of_batch[other] > edges_of_batch[target]:
                        target = other
            inside[slot] = edges_of_batch[batch]
            targets[i] = target if edges_of_batch[target] > inside[slot] and not drawn[i] else -1
            for e in range(graph.offsets[i], graph.offsets[i + 1]):
                other = home[graph.edges[e]]
                if other >= 0:
                    edges_of_batch[other] = 0
            if drawn[i]:
                continue
            at = slot
            for c in range(CANDIDATES):  # insertion into the short list of the weakest
                other = weakest[batch, c]
                if other < 0 or inside[at] < inside[other]:
                    weakest[batch, c], at = at, other
                    if other < 0:
                        break


@kernel
def _best_partner(
    graph: Graph,
    classes: Classes,
    home: Any,
    sizes: Any,
    batches: Any,
    weakest: Any,
    batch: int,
    target: int,
    i: int,
    gain_of_i: int,
    unique_labels: bool,
) -> int:
    """Return the slot in `target` to swap pair i with, or -1 if no swap leaves more edges inside."""
    best_gain, best_slot = 0, -1
    for c in range(CANDIDATES):
        slot = weakest[target, c]
        if slot < 0:
            break
        j = batches[target, slot]
        between = 0
        for e in range(graph.offsets[j], graph.offsets[j + 1]):
            between += graph.edges[e] == i
        gain_of_j = _edges_into(graph, home, j, batch) - _edges_into(graph, home, j, target)
        gain = gain_of_i + gain_of_j - 2 * between
        if gain > best_gain and (
            unique_labels
            or not (
                _holds(classes, batches, sizes[target], target, classes.labels[i], j)
                or _holds(classes, batches, sizes[batch], batch, classes.labels[j], i)
            )
        ):
            best_gain, best_slot = gain, slot
    return best_slot


@kernel
def swap(
    graph: Graph,
    classes: Classes,
    home: Any,
    sizes: Any,
    batches: Any,  # in and out
    weakest: Any,
    targets: Any,
    unique_labels: bool,
) -> int:
    """Swap two pairs wherever a proposal still leaves more edges inside batches; return the number of swaps."""
    swapped = 0
    for batch in range(len(sizes)):
        for slot in range(sizes[batch]):
            i = batches[batch, slot]
            target = targets[i]
            targets[i] = -1
            if target < 0 or target == batch:
                continue
            gain = _edges_into(graph, home, i, target) - _edges_into(graph, home, i, batch)
            if gain <= 0:
                continue
            partner = _best_partner(
                graph, classes, home, sizes, batches, weakest, batch, target, i, gain, unique_labels
            )
            if partner >= 0:
                j = batches[target, partner]
                batches[batch, slot], batches[target, partner] = j, i
                home[i], home[j] = target, batch
                swapped += 1
    return swapped
