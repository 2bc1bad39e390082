"""Compute what part of an epoch mining takes, for docs/cost.md, from results that were measured apart.

Nothing is measured here: the search comes from `benchmarks/results/search_gpu.json`, composition from
`epoch_change.json` and `observe` from `observe.json`, with the machine of each.
"""

from dataclasses import dataclass

from benchmarks import record
from benchmarks.markdown import markdown

PAIRS, BITS, STEP = 532_736, 512, 0.050  # pairs of the epoch, bits of their codes, seconds of a step
BATCHES = (64, 128)  # pairs per step


@dataclass(frozen=True)
class Share:
    """The seconds of mining in an epoch whose steps all take as long."""

    pairs_per_step: int
    search: float
    composition: float
    observe: float  # of one call

    @property
    def steps(self) -> int:
        """Steps of the epoch."""
        return -(-PAIRS // self.pairs_per_step)

    @property
    def observed(self) -> float:
        """Seconds in `observe`."""
        return self.steps * self.observe

    @property
    def mining(self) -> float:
        """Seconds of search, composition and `observe`."""
        return self.search + self.composition + self.observed

    @property
    def fraction(self) -> float:
        """What these are of an epoch that consists of its steps alone."""
        return self.mining / (self.steps * STEP)


def shares() -> list[Share]:
    """Return the shares that the committed results give, one per size of the batches."""
    search = next(
        row["seconds"]
        for row in record.read("search_gpu")["search"]
        if (row["queries"], row["rows"], row["bits"]) == (PAIRS, PAIRS, BITS)
    )
    composition = next(
        row["seconds"]["total"] - row["seconds"].get("search", 0)
        for row in record.read("epoch_change")["epoch_change"]
        if row["pairs"] == PAIRS
    )
    call = min(row["milliseconds"] for row in record.read("observe")["observe"] if row["towers"] > 1) / 1000
    return [Share(batch, search, composition, call) for batch in BATCHES]


def _table() -> str:
    search, change, observe = (record.read(name) for name in ("search_gpu", "epoch_change", "observe"))
    if observe["settings"]["bits"] != BITS or change["settings"]["bits"] != BITS:
        raise ValueError(f"the parts of an epoch must all be measured with {BITS} bits.")
    header = ["pairs per step", "steps", "search", "composition", "`observe`", "mining", "of an epoch"]
    rows = [
        [
            share.pairs_per_step,
            f"{share.steps:,}",
            *(f"{seconds:.2f} s" for seconds in (share.search, share.composition, share.observed, share.mining)),
            f"{share.fraction:.2%}",
        ]
        for share in shares()
    ]
    composing, searching = change["settings"], search["settings"]
    copies = "" if composing["searched"] else "; the copy of the neighbour lists to the host was not timed"
    note = (
        f"Computed from parts that were measured apart: {PAIRS:,} pairs, {BITS} bits, steps of {1000 * STEP:.0f} ms. "
        f"Search: the {searching['k']} nearest of each of as many codes, on one {search['gpu']['name']}, "
        "`benchmarks/results/search_gpu.json`. "
        f"Composition: {composing['pairs_per_batch']} pairs per batch, {composing['threads']} threads on "
        f"{change['machine']['cores']} cores of another machine, `benchmarks/results/epoch_change.json`. `observe`: "
        f"two towers of dimension {observe['settings']['dim']}, host time of a call with "
        f"{observe['settings']['pairs_per_batch']} pairs, which is taken for other sizes too, on one "
        f"{observe['machine']['gpu']}, `benchmarks/results/observe.json`{copies}."
    )
    return f"{markdown(header, rows)}\n\n{note}"


TABLES = {"epoch_share": _table}
