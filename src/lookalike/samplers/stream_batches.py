"""Hard batches from a stream: samples that come once, without ids and without a length, are mined window by window."""

from __future__ import annotations

import copy
import logging
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from lookalike.analysis.measures import NEIGHBOURS
from lookalike.batches import check_options, lists_width
from lookalike.hashing import CENTER
from lookalike.negatives import Filters
from lookalike.samplers import states
from lookalike.samplers.pairing import Labelled, Paired
from lookalike.samplers.stream_samples import dealt, number_labels, obstacle
from lookalike.samplers.warm_start import WARM_HARDNESS
from lookalike.samplers.window import WindowHasher, compose_window
from lookalike.utils.checks import Range, checked_bits, checked_integer, checked_positive
from lookalike.utils.lengthless import is_stream
from lookalike.utils.undisturbed import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lookalike.batches import Neighbourhood
    from lookalike.samplers.stream_samples import Label
    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

WINDOW = 65536  # samples
ROWS = 256  # samples that are embedded at a time
VERSION = 1  # of the state


@dataclass
class StreamCounts:
    """What has become of the samples of a pass over the stream."""

    read: int = 0
    """Samples taken from the stream."""
    windows: int = 0
    """Windows that batches were composed from."""
    batches: int = 0
    """Batches yielded."""
    repeated: int = 0
    """Samples listed twice: a label's odd one out borrows its partner from another pair."""
    dropped: int = 0
    """Samples that were read and will never be yielded, for want of a positive or of a full batch."""
    not_finite: int = 0
    """Samples whose embedding held NaN or infinity: they were put into batches at random."""


class StreamBatches(IterableDataset[Any]):
    """Batches of mutual hard negatives from a stream: a `datasets.IterableDataset`, torch's, or any iterable.

    Fills a window with samples, embeds them once with the current weights and without gradients, hashes them, and
    composes batches from the neighbours in the window. When its batches are used up, it reads and mines the next.
    Codes never leave their window, so memory is bounded by `window` samples and their codes, however long the stream.
    A stream shows each sample once, and there is no earlier embedding to reuse: the price is one forward pass per
    sample, unless `hardness` is 0.

    Labelled samples without a positive in the window, and pairs that do not fill a batch, wait for the next one. At
    most half of the window waits: the oldest samples beyond that are dropped, and so is what still waits when the
    stream ends. `counts` says how many.

    Args:
        stream: Iterable of samples; for several reading processes `DataLoader(stream, batch_size=None, num_workers=4)`.
        embed: Called with collated samples; returns embeddings `[n, dim]`, or with `pairs` a tuple, those of the
            queries and those of the references. Normalise them if the loss compares by cosine.
        batch_size: Samples per batch: two per pair, anchor and positive in turns; with `pairs`, the number of pairs.
        label: What tells positives from negatives: a key of the sample, or a function of it that returns a number or
            a string. Pairs need none, but those with the same label never meet in a batch.
        pairs: Whether each sample is a pair, a query with its reference.
        window: Samples to mine at a time, at least two batches. Larger windows hold harder negatives.
        bits: Length of the codes, a multiple of 8.
        hardness: Fraction of a batch taken from hard negatives. Set the attribute at any time to change it from the
            next window on. The default is that of a first epoch after a warm start: a stream is often the only one.
        collate_fn: Turns a list of samples into a batch; by default `torch.utils.data.default_collate`.
        model: Module to embed with in evaluation mode, which is undone afterwards; by default `embed`, if it is one.
        embed_batch_size: Samples to embed at a time.
        center: Fraction of the window's mean to subtract before hashing, as in `SignHasher`.
        neighbourhood: Pairs per neighbourhood, as in `compose_batches`.
        method: "growth" or "sample4geo", as in `compose_batches`.
        filters: Which neighbours count as hard negatives; without `exclude`, because a stream has no ids.
        k: Hard negatives per sample to compose batches from, at most; "growth" uses 32.
        drop_last: Drop the last batch of the stream if it is short; all others are full either way.
        shard: On several ranks, True deals the samples to them in turns. False if each rank's stream is its own part
            already, as after `datasets.distributed.split_dataset_by_node`.
        seed: Decides rotation and order.

    Raises:
        TypeError: `stream` cannot be iterated over, or an argument has the wrong type.
        ValueError: An argument is out of range, there are neither labels nor pairs or, while iterating, the first
            window does not fill one batch.

    Examples:
        >>> import torch
        >>> samples = [{"x": torch.randn(8), "label": i // 2} for i in range(100)]
        >>> batches = StreamBatches(samples, lambda batch: batch["x"], 20, label="label", window=50, bits=64)
        >>> [len(batch["label"]) for batch in batches]
        [20, 20, 20, 20, 20]
        >>> batches.counts.read, batches.counts.dropped
        (100, 0)
    """

    def __init__(
        self,
        stream: Iterable[Any],
        embed: Callable[[Any], Any],
        batch_size: int,
        *,
        label: Label = None,
        pairs: bool = False,
        window: int = WINDOW,
        bits: int = 512,
        hardness: float = WARM_HARDNESS,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        model: nn.Module | None = None,
        embed_batch_size: int = ROWS,
        center: float = CENTER,
        neighbourhood: Neighbourhood = "auto",
        method: str = "growth",
        filters: Filters | None = None,
        k: int = NEIGHBOURS,
        drop_last: bool = False,
        shard: bool | None = None,
        seed: int = 0,
    ) -> None:
        if not hasattr(stream, "__iter__"):
            raise TypeError(f"stream must be an iterable of samples, got {type(stream).__name__}.")
        if not callable(embed):
            raise TypeError(f"embed must be a function or a module, got {type(embed).__name__}.")
        if label is None and not pairs:
            raise ValueError(
                "label is missing: name the key that holds it, or, for a stream of pairs, give pairs=True."
            )
        self.stream, self.label, self.pairs = stream, label, pairs
        self.batch_size, self.window = checked_positive("batch_size", batch_size), checked_positive("window", window)
        if self.batch_size % self._width:
            raise ValueError(f"batch_size counts samples, two per pair, and must be even, got {batch_size}.")
        if window < 2 * batch_size:
            raise ValueError(f"window must hold at least two batches, {2 * batch_size} samples, got {window}.")
        self.filters = filters or Filters()
        if self.filters.exclude is not None:
            raise ValueError("filters exclude samples by id, and a stream has no ids; keep samples apart by label=.")
        self._options: dict[str, Any] = {"neighbourhood": neighbourhood, "method": method}
        self.hardness = hardness
        self.drop_last, self.shard, self.seed = drop_last, shard, checked_integer("seed", seed)
        room = k if self.filters.range_max is None else self.filters.range_max - self.filters.range_min
        self.k = min(checked_positive("k", k), room, lists_width(method))
        self.collate_fn = collate_fn or default_collate
        self._modules = [module for module in (model, embed) if isinstance(module, nn.Module)]
        self._hasher = WindowHasher(
            lambda samples: embed(self.collate_fn(samples)),
            pairs=pairs,
            rows=checked_positive("embed_batch_size", embed_batch_size),
            bits=checked_bits(bits),
            center=Range(0, 1, with_high=True).check("center", center),
            seed=seed,
            k=self.k,
        )
        self.epoch = 0
        self.counts = StreamCounts()
        self._waiting: list[Any] = []  # samples, oldest first
        self._began: dict[str, Any] | None = None  # the state before the current window
        self._loaded: dict[str, Any] | None = None  # the state that the next pass continues from
        self._fresh: Any = None  # the position of a stream at its beginning, once a state has been loaded into it
        self._is_used_up = True  # whether all batches of the current window were yielded
        self._has_warned_of_drops = False

    @property
    def hardness(self) -> float:
        """Fraction of a batch taken from hard negatives, from the next window on."""
        return self._hardness

    @hardness.setter
    def hardness(self, fraction: float) -> None:
        check_options(fraction, **self._options)
        self._hardness = fraction

    @property
    def _width(self) -> int:
        return 1 if self.pairs else 2

    def set_epoch(self, epoch: int) -> None:
        """Shuffle differently in the next pass over the stream, which is told the epoch, too, if it has `set_epoch`."""
        self.epoch = checked_integer("epoch", epoch)
        if hasattr(self.stream, "set_epoch"):
            self.stream.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "StreamBatches embeds with the current weights, which a worker process does not have: iterate over it "
                "in the training process, and let workers read the stream: "
                "StreamBatches(DataLoader(stream, batch_size=None, num_workers=...), ...)."
            )
        loaded = self._loaded
        if loaded is None and self._fresh is not None:  # Hugging Face begins every pass where a state was loaded
            self.stream.load_state_dict(copy.deepcopy(self._fresh))  # type: ignore[attr-defined]
        source = dealt(self.stream, self.shard)
        position = None if loaded is None else loaded["stream"]  # of the stream, where the window begins
        if loaded is None:
            self.counts, self._waiting = StreamCounts(), []
        self._loaded, has_ended = None, False
        while not has_ended:
            self._began, self._is_used_up = self._state(position), False  # a window that fails begins again
            samples = self._waiting + list(islice(source, max(0, self.window - len(self._waiting))))
            self.counts.read += len(samples) - len(self._waiting)
            has_ended = len(samples) < self.window
            batches = self._compose(samples, has_ended=has_ended)
            listed = {int(i) for batch in batches for i in batch}
            self._wait([sample for i, sample in enumerate(samples) if i not in listed], has_ended=has_ended)
            self.counts.windows += len(batches) > 0
            self.counts.repeated += sum(map(len, batches)) - len(listed)
            self._is_used_up = not batches
            for number, batch in enumerate(batches, 1):
                self.counts.batches += 1
                self._is_used_up = number == len(batches)
                yield self.collate_fn([samples[i] for i in batch])
            position = self._position()
            del samples, batches  # before the next window is read

    def _compose(self, samples: list[Any], *, has_ended: bool) -> list[Array]:
        """Return the batches of a window, as arrays of positions; there are none if it does not fill one."""
        if not samples:
            return []
        labels = number_labels(samples, self.label)
        usable = np.arange(len(samples)) if self.pairs else np.flatnonzero(np.bincount(labels)[labels] > 1)
        labels, size = labels[usable], self.batch_size // self._width
        drop_last = self.drop_last or not has_ended
        if not drop_last:  # the end of the stream may hold fewer labels than a batch does
            size = min(size, max(1, len(np.unique(labels))))
        why_not = obstacle(labels, size, len(samples), pairs=self.pairs, drop_last=drop_last)
        if why_not is not None:
            if self.counts.windows == 0:
                raise ValueError(f"the first window of the stream gives no batch: {why_not}")
            if not has_ended:
                logger.warning("window %d of the stream gives no batch: %s", self.counts.windows + 1, why_not)
            return []
        rng, codes = np.random.default_rng([self.seed, self.epoch, self.counts.windows]), None
        if self.hardness > 0:
            with undisturbed(self._modules):
                codes = self._hasher.hash([samples[i] for i in usable], rng)
            self._count_not_finite(int((~codes.finite).sum()))
        pairing = Paired(len(usable), None if self.label is None else labels) if self.pairs else Labelled(labels)
        options = {"hardness": self.hardness, "drop_last": drop_last, **self._options}
        batches = compose_window(pairing, codes, size, k=self.k, filters=self.filters, rng=rng, **options)
        return [usable[batch] for batch in batches]

    def _wait(self, samples: list[Any], *, has_ended: bool) -> None:
        """Keep the newest samples for the next window, half of it at most."""
        room = 0 if has_ended else self.window // 2
        dropped = max(0, len(samples) - room)
        if dropped and not has_ended and not self._has_warned_of_drops:
            self._has_warned_of_drops = True
            logger.warning(
                "%d samples of the stream are dropped, because more than half of the window waits for a positive or "
                "for a full batch; a larger window drops fewer. This is said once, counts.dropped goes on counting.",
                dropped,
            )
        self.counts.dropped += dropped
        self._waiting = samples[dropped:]

    def _count_not_finite(self, number: int) -> None:
        if number and not self.counts.not_finite:
            logger.warning(
                "%d samples of a window have embeddings with NaN or infinity and are put into batches at random; look "
                "for a diverging loss or a division by zero in the model.",
                number,
            )
        self.counts.not_finite += number

    def state_dict(self) -> dict[str, Any]:
        """Return where to continue: after the current window, if all its batches were yielded, or at its beginning.

        A window is never mined the same way twice, because the weights have changed, so a state taken within one begins
        it again: no sample is lost, but those that were already trained on come again. The stream must know its
        position, as streams of Hugging Face and torchdata's `StatefulDataLoader` do. The state holds the samples that
        wait.

        Raises:
            TypeError: The stream has no `state_dict`.
        """
        if not hasattr(self.stream, "state_dict"):
            raise TypeError(
                f"the stream, of type {type(self.stream).__name__}, cannot tell its position, because it has no "
                "state_dict: use a Hugging Face stream or torchdata's StatefulDataLoader, or start the stream again."
            )
        return self._state(self._position()) if self._is_used_up or self._began is None else self._began

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, with the next `iter`.

        Raises:
            ValueError: The state is of another version or damaged; nothing was loaded.
            TypeError: The stream has no `load_state_dict`.
        """
        if states.entry(state, "version", int) != VERSION:
            raise ValueError(f"the state has version {state['version']}, and this StreamBatches loads {VERSION}.")
        epoch, waiting = states.entry(state, "epoch", int), states.entry(state, "waiting", list)
        counted = states.entry(state, "counts", dict)
        counts = StreamCounts(**{name: states.entry(counted, name, int) for name in asdict(StreamCounts())})
        if "stream" not in state:
            raise states.damaged("stream is missing")
        if not hasattr(self.stream, "load_state_dict"):
            raise TypeError(f"the stream, of type {type(self.stream).__name__}, has no load_state_dict.")
        self.set_epoch(epoch)
        if state["stream"] is not None:
            if self._fresh is None and is_stream(self.stream) and hasattr(self.stream, "state_dict"):
                self._fresh = copy.deepcopy(self.stream.state_dict())
            self.stream.load_state_dict(copy.deepcopy(state["stream"]))
        self._waiting, self.counts, self._began, self._is_used_up = list(waiting), counts, None, True
        self._loaded = copy.deepcopy(state)

    def _position(self) -> Any:
        """Return the position of the stream, or None before the first pass, and if it cannot tell."""
        if self._began is None:
            return None if self._loaded is None else self._loaded["stream"]
        return copy.deepcopy(self.stream.state_dict()) if hasattr(self.stream, "state_dict") else None

    def _state(self, position: Any) -> dict[str, Any]:
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "counts": asdict(self.counts),
            "waiting": list(self._waiting),
            "stream": position,
        }
