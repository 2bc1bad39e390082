"""Texts -> embeddings or codes: a model encodes block by block, and what it returned is kept in stores."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing import SignHasher
from lookalike.mining.cells import Cell, ranges, read_cell
from lookalike.mining.models import AnyEncoder, module_of, name_of
from lookalike.mining.pipeline import MISSING
from lookalike.mining.rows import ShardRows
from lookalike.mining.sources import load_model
from lookalike.mining.store import Store
from lookalike.utils.lists import row_numbers
from lookalike.utils.progress import working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from lookalike.hashing import ScalarHasher
    from lookalike.mining import Search
    from lookalike.mining.pipeline import Candidates
    from lookalike.mining.rows import Rows
    from lookalike.mining.text_files import TextFile

SAMPLED = 256  # values per weight that a fingerprint looks at in their order
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Prompt = tuple[str | None, str | None]  # the prompt itself, or the name of one of the model's


@dataclass
class Encoder:
    """A model that encodes texts: an object, or a name, by which each process loads its own.

    A context that stops the processes of `devices`.
    """

    given: Any
    device: str | None = None
    batch_size: int = 32
    devices: list[str] | bool = False  # encode in one process per device
    progress: bool = False
    _pool: Any = None
    _dim: int | None = None  # of the first embeddings

    @cached_property
    def model(self) -> Any:
        """The model, loaded when it is first needed."""
        if not isinstance(self.given, str):
            return self.given
        with working(f"loading {self.given}", shown=self.progress):
            return load_model(self.given, self.device)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this model from others: its weights or, without any, its name."""
        return identify(self.model)

    @property
    def similarity(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """The model's own similarity of rows; None if it is that of normalised rows, the dot product."""
        return None if self.how_compared in ("cosine", "dot") else self.model.similarity_pairwise

    @property
    def how_compared(self) -> str:
        """The name of that similarity: a setting of the model, which changes scores and no embeddings."""
        return str(self.model.similarity_fn_name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self.model.stop_multi_process_pool(self._pool)
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without what another process loads or starts itself."""
        left = ("_pool", *(["model"] if isinstance(self.given, str) else []))
        return {name: value for name, value in self.__dict__.items() if name not in left} | {"progress": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _pool=None)

    def encode(self, kind: str, texts: list[str], prompt: Prompt, advance: Callable[[float], None]) -> Tensor:
        """Return normalised embeddings, float32, on the device of the model.

        Raises:
            ValueError: They are not as long as those before.
        """
        encode = self.model.encode_query if kind == "query" else self.model.encode_document
        if self.devices and self._pool is None:
            named = None if isinstance(self.devices, bool) else self.devices
            self._pool = self.model.start_multi_process_pool(target_devices=named)
        with self._batches_shown(len(texts), advance):
            embeddings = encode(
                texts,
                batch_size=self.batch_size,
                prompt=prompt[0],
                prompt_name=prompt[1],
                pool=self._pool,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_tensor=self._pool is None,
                convert_to_numpy=self._pool is not None,
            )
        tensor: Tensor = torch.as_tensor(embeddings).float()
        before, self._dim = self._dim, tensor.shape[1]
        if before not in (None, self._dim):
            raise ValueError(
                f"the model returns vectors of {self._dim} values for a {kind}, and returned {before} before: all "
                "texts, queries too, need vectors of one length."
            )
        return tensor

    def encode_finite(self, kind: str, texts: list[str], prompt: Prompt, advance: Callable[[float], None]) -> Tensor:
        """Encode, and check what comes out.

        Raises:
            ValueError: The model returns NaN or infinity; names the text.
        """
        x = self.encode(kind, texts, prompt, advance)
        finite = torch.isfinite(x).all(1)
        if not bool(finite.all()):
            text = texts[int((~finite).nonzero()[0])]
            raise ValueError(
                f"the model returns NaN or infinity for the text {text[:60]!r}; check for damaged weights, or load it "
                "in a wider precision."
            )
        return x

    @contextmanager
    def _batches_shown(self, number: int, advance: Callable[[float], None]) -> Iterator[None]:
        """Advance with every batch that the model encodes, by `number` texts in all.

        One call encodes a whole chunk, because the model sorts its texts by length to save padding. A hook on the
        model's first module sees the batches of a call, unless other processes encode them.
        """
        shown = 0

        def on_batch(*_: Any) -> None:
            nonlocal shown
            step = min(self.batch_size, number - shown)
            shown += step
            advance(step)

        first = next(iter(self.model.children()), None) if self.progress and hasattr(self.model, "children") else None
        handle = None if first is None else first.register_forward_hook(on_batch)
        try:
            yield
        finally:
            if handle is not None:
                handle.remove()
        advance(number - shown)


@dataclass(frozen=True)
class EncodedTexts:
    """Texts of one side, and what the model made of them: a store per block, in a folder that runs may share.

    Stores hold embeddings, which another run may hash to another number of bits. Where codes score, they hold codes:
    signs, which are not centred and need no mean, or those of the hasher.

    Args:
        kind: "query" or "document": how the model should encode them.
        texts: The texts.
        encoder: The model.
        prompt: What to put in front of each text.
        search: How candidates are found.
        cache: The folder of the stores.
        cells: The folder of the cells, which know the stores of their blocks.
        block: Texts per store.
        hasher: Makes codes of several bits per dimension; None for signs.
        kept: Filled with the number of texts on disk by block, to be shown when a run is interrupted.
    """

    kind: str
    texts: TextFile
    encoder: Encoder
    prompt: Prompt
    search: Search
    cache: Path
    cells: Path
    block: int
    hasher: ScalarHasher | None = None
    kept: dict[tuple[str, int], int] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without open files."""
        return {name: value for name, value in self.__dict__.items() if name != "floats"}

    @property
    def side(self) -> str:
        """The side of the run that these texts are."""
        return "query" if self.kind == "query" else "reference"

    @cached_property
    def floats(self) -> Rows | None:
        """The embeddings; None if only codes are kept."""
        if not self.search.keeps_floats:
            return None
        n = len(self.texts)
        return ShardRows([self._store(range(i, min(i + self.block, n))).rows() for i in range(0, n, self.block)])

    def encode(self, rows: range, advance: Callable[[float], None]) -> dict[str, Tensor]:
        """Encode the texts of a block that are not in its store yet, and return the name of the store.

        Raises:
            ValueError: The model returns NaN.
            FolderInUseError: Another process is encoding the same texts in the same folder.
            DiskFullError: There is no room.
            UnwritableError: The folder cannot be written to.
        """
        texts, key = self.texts[rows.start : rows.stop], (self.kind, rows.start)
        name = self._name(texts)
        with Store(self.cache / name, len(texts), self._dtype) as store:
            self.kept[key] = store.kept
            for j in range(store.num_chunks):
                there = store.read(j)
                if there is None:
                    store.claim()  # before the work of encoding, not after it
                    there = store.read(j)
                    self.kept[key] = store.kept
                if there is not None:
                    advance(len(there))
                    continue
                these = [texts[i] for i in store.chunk(j)]
                x = self.encoder.encode_finite(self.kind, these, self.prompt, advance)
                if not self.search.keeps_floats:
                    x = self._hashed(x)
                store.write(j, x.cpu().numpy())
                self.kept[key] = store.kept
        return {"store": torch.tensor(list(name.encode()), dtype=torch.uint8)}

    def holds(self, rows: range, *, read: bool = True) -> bool:
        """Return whether all chunks of a block's store are there and, if they are `read`, whole."""
        if read_cell(self.cells / Cell("encode", self.side, rows).name) is None:
            return False
        store = self._store(rows)
        return store.is_full and (not read or all(store.read(j) is not None for j in range(store.num_chunks)))

    def done(self) -> Iterator[tuple[tuple[str, int], int]]:
        """Yield the number of texts of each block that is encoded, in whichever process, as `kept` has it."""
        for rows in ranges(len(self.texts), self.block):
            if (self.cells / Cell("encode", self.side, rows).name).exists():
                yield (self.kind, rows.start), len(rows)

    def blocks(self, rows: range) -> Iterator[tuple[slice, Tensor]]:
        """Yield the chunks of a block's store, and which of the block's rows they hold."""
        store = self._store(rows)
        for j in range(store.num_chunks):
            there = store.read(j)
            if there is None:  # damaged since it was encoded
                self.encode(rows, lambda _: None)
                store = self._store(rows)
                there = store.read(j)
                if there is None:
                    raise RuntimeError(f"{store.folder} cannot be read back; check the disk.")
            yield slice(j, len(rows), store.num_chunks), torch.from_numpy(there)

    def name_row(self, row: int) -> str:
        """Say which text a row is, in an error."""
        return (
            f"the embedding of the text {self.texts[row][:60]!r} is not finite; remove {self.cache} and run it again."
        )

    @property
    def _dtype(self) -> type[np.float32 | np.uint8]:
        return np.float32 if self.search.keeps_floats else np.uint8

    def _hashed(self, x: Tensor) -> Tensor:
        if self.hasher is not None:
            return self.hasher.encode(x).packed
        return SignHasher(x.shape[1], self.search.length, center=self.search.center).encode(x)

    def _store(self, rows: range) -> Store:
        """Open the store of a block that is encoded."""
        found = read_cell(self.cells / Cell("encode", self.side, rows).name)
        if found is None:
            raise RuntimeError(f"the cell of the texts from {rows.start} is gone from {self.cells}; run it again.")
        return Store(self.cache / bytes(found["store"].tolist()).decode(), len(rows), self._dtype)

    def _name(self, texts: list[str]) -> str:
        """Name the store of these texts after everything that their embeddings or codes depend on."""
        search = self.search
        depends_on = [self.kind, self.encoder.fingerprint, repr((*self.prompt, Store.CHUNK, search.keeps_floats))]
        if not search.keeps_floats and self.hasher is not None:
            depends_on.append(f"scheme {self.hasher.scheme.identity}")
        elif not search.keeps_floats:
            depends_on.append(f"{search.length} bits, center {search.center}")
        return f"{self.kind}-{checksum([*depends_on, *texts])[:24]}"


@dataclass(frozen=True)
class CrossEncoderScores:
    """Scores candidates and positives with a cross-encoder, in place of cosines."""

    cross_encoder: Any
    queries: TextFile
    corpus: TextFile
    batch_size: int
    pool: Any = None

    def __call__(self, found: Candidates) -> Candidates:
        """Return candidates with the scores of the cross-encoder."""
        there = found.indices >= 0
        rows = torch.cat([there.nonzero()[:, 0], row_numbers(found.positives)]) + found.first
        ids = torch.cat([found.indices[there], found.positives[1]])
        texts = list(zip(self.queries.take(rows), self.corpus.take(ids), strict=True))
        more = {} if self.pool is None else {"pool": self.pool}
        judged = self.cross_encoder.predict(
            texts, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False, **more
        )
        judged = judged.float().cpu()
        scores = torch.full(found.scores.shape, MISSING)
        number = int(there.sum())
        scores[there] = judged[:number]
        return replace(found, scores=scores, positive_scores=judged[number:])


@contextmanager
def pool_of(model: Any, devices: list[str] | bool) -> Iterator[Any]:
    """Start a model in other processes for as long as the context lasts; yield None unless there are devices."""
    if not devices:
        yield None
        return
    pool = model.start_multi_process_pool(target_devices=None if isinstance(devices, bool) else devices)
    try:
        yield pool
    finally:
        model.stop_multi_process_pool(pool)


def checksum(texts: Iterable[str]) -> str:
    """Return a checksum of texts, their order, and where one ends and the next begins."""
    digest = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", errors="surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def identify(model: Any) -> str:
    """Tell a model or a judge from others: by its weights or, without any, by its name."""
    if hasattr(model, "state_dict"):
        return fingerprint(model)
    name, given = (model.name, model.given) if isinstance(model, AnyEncoder) else (name_of(model), model)
    module = module_of(given)
    return name if module is None else f"{name}, weights {fingerprint(module)}"


def fingerprint(model: Any) -> str:
    """Return a checksum of a model's modules, prompts and weights.

    A name does not identify a model: training it further keeps the name.
    """
    settings = ("prompts", "default_prompt_name", "max_seq_length", "truncate_dim")
    about = [repr(model), *(repr(getattr(model, name, None)) for name in settings)]
    digest = hashlib.sha256("\n".join(about).encode())
    for name, weight in model.state_dict().items():
        flat = weight.detach().contiguous().flatten()
        sample = flat[:: max(1, len(flat) // SAMPLED)].to("cpu", torch.float64).numpy()
        # Integers have one sum, in whatever order a device adds them.
        total = int(flat.view(WORDS[flat.element_size()]).sum(dtype=torch.int64))
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype} {total}".encode())
        digest.update(np.ascontiguousarray(sample).tobytes())
    return digest.hexdigest()
