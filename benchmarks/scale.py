"""Compute what a rank holds and receives by size of the training set, for docs/many_gpus.md: nothing is measured here.

Bytes follow from the source: the length of the codes, the width of the neighbour lists and the types of both. The time
of the search is the one of `benchmarks/results/search_gpu.json`, in proportion to the number of comparisons.
"""

from dataclasses import dataclass

import torch

from benchmarks import record
from benchmarks.markdown import markdown
from lookalike.batches import lists_width
from lookalike.samplers.pairing import Labelled, Paired
from lookalike.training.settings import Settings

SIZES = {"1 M": 10**6, "10 M": 10**7, "100 M": 10**8, "1 B": 10**9}
RANKS = 8
NUMBER = torch.int32.itemsize  # bytes of an id, in neighbour lists and in batches
COMPOSING = 2.5  # times the lists, which are included: what composition takes at most
UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
DURATIONS = (("h", 3600), ("min", 60), ("s", 1))


@dataclass(frozen=True)
class Scale:
    """What a rank holds and receives, in bytes.

    Args:
        n: Samples of labelled data, or pairs of paired data.
        towers: Code tables: one for labelled data, two for paired data.
        bits: Length of the codes.
        method: How batches are composed.
        ranks: How many ranks there are.
    """

    n: int
    towers: int = len(Paired.towers)
    bits: int = int(Settings().bits)
    method: str = Settings().method
    ranks: int = RANKS

    @property
    def codes(self) -> int:
        """Codes of all towers, on the host and, during the search, on the GPU."""
        return self.n * self.towers * self.bits // 8

    @property
    def lists(self) -> int:
        """Neighbour lists, on the host."""
        return self.n * lists_width(self.method) * NUMBER

    @property
    def composing(self) -> int:
        """Composition at its peak, neighbour lists included, on the host."""
        return round(COMPOSING * self.lists)

    @property
    def batches(self) -> int:
        """The ids that the batches of an epoch list."""
        return self.n * NUMBER

    @property
    def host(self) -> int:
        """Everything on the host at the peak."""
        return self.codes + self.composing + self.batches

    @property
    def received(self) -> int:
        """Lists and ids of the other ranks, when an epoch begins."""
        return (self.lists + self.batches) * (self.ranks - 1) // self.ranks

    @property
    def comparisons(self) -> int:
        """Codes times codes that a rank compares when an epoch begins."""
        return self.n * self.n // self.ranks


def _memory() -> str:
    header = [
        "samples, or pairs",
        "codes, labelled data",
        "codes, paired data",
        "neighbour lists",
        "composition, lists included",
        "ids of batches",
        "host, paired data",
        f"{RANKS} ranks on one host",
    ]
    rows = []
    for name, n in SIZES.items():
        labelled, paired = Scale(n, len(Labelled.towers)), Scale(n)
        held = (paired.codes, paired.lists, paired.composing, paired.batches, paired.host, RANKS * paired.host)
        rows.append([name, *map(_size, (labelled.codes, *held))])
    note = (
        f"Computed, not measured: {Scale(1).bits} bits, {lists_width(Scale(1).method)} neighbours; composition with at "
        f"most {COMPOSING} times the lists."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _traffic() -> str:
    result = record.read("search_gpu")
    timed = [row for row in result["search"] if row["bits"] == Scale(1).bits]
    most = max(timed, key=lambda row: row["queries"] * row["rows"])
    seconds = most["seconds"] / (most["queries"] * most["rows"])  # of one comparison
    header = ["samples, or pairs", "received by a rank: lists and ids", "search on each GPU"]
    rows = [[name, _size(Scale(n).received), _duration(seconds * Scale(n).comparisons)] for name, n in SIZES.items()]
    note = (
        f"Computed, not measured: {RANKS} ranks, {Scale(1).bits} bits. The time is extrapolated from the largest "
        f"search that was timed, {most['queries']:,} codes in {most['rows']:,} on one {result['gpu']['name']}, from "
        "`benchmarks/results/search_gpu.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _size(number: float) -> str:
    """Write bytes with three digits.

    Examples:
        >>> _size(64e6), _size(1.28e10), _size(3.5e12)
        ('64 MB', '12.8 GB', '3.5 TB')
    """
    name, unit = next(((name, unit) for name, unit in UNITS if number >= unit), UNITS[-1])
    return f"{number / unit:.3g} {name}"


def _duration(seconds: float) -> str:
    name, unit = next(((name, unit) for name, unit in DURATIONS if seconds >= unit), DURATIONS[-1])
    return f"{seconds / unit:.1g} {name}" if seconds < unit else f"{seconds / unit:.0f} {name}"


TABLES = {"scale_memory": _memory, "scale_traffic": _traffic}
