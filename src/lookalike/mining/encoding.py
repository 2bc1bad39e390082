"""Texts -> codes: a model encodes chunk by chunk, and its embeddings are hashed as they come out."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing import SignHasher
from lookalike.mining.pipeline import MISSING, Problem, Side
from lookalike.mining.store import Store
from lookalike.utils.files import writable
from lookalike.utils.lists import row_numbers
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lookalike.mining import Search
    from lookalike.mining.pipeline import Candidates
    from lookalike.mining.sources import Pairs
    from lookalike.utils.progress import Bar

SAMPLED = 256  # values per weight that a fingerprint looks at in their order
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Prompt = tuple[str | None, str | None]  # the prompt itself, or the name of one of the model's


@dataclass
class Encoder:
    """A sentence-transformers model, and the folder that caches what it encodes.

    With `rescore` the cache holds embeddings, which a resumed run hashes again, so another number of bits needs no
    encoding. Without it, the cache holds codes, which are not centred and need no mean.
    """

    model: Any
    folder: Path
    search: Search
    batch_size: int = 32
    devices: list[str] | bool = False  # encode in one process per device
    progress: bool = False
    kept: dict[str, int] = field(default_factory=dict)  # texts on disk, by kind
    mean: Tensor | None = None  # float64 [dim]; codes are centred by it

    def encode(self, pairs: Pairs, query_prompt: Prompt, corpus_prompt: Prompt) -> Problem:
        """Encode the texts of pairs that are not in the cache yet.

        Raises:
            ValueError: The model returns NaN.
            FolderInUseError: Another process is encoding the same texts in the same folder.
            DiskFullError: There is no room.
            UnwritableError: The folder cannot be written to.
        """
        with pool_of(self.model, self.devices) as pool:
            # The corpus sets the mean for queries too: codes are comparable only if they share an origin.
            corpus = self._side("document", pairs.corpus, corpus_prompt, pool)
            queries = self._side("query", pairs.queries, query_prompt, pool)
        # Embeddings are normalised, so dot products and cosines agree; other similarities are the model's own.
        similarity = None if self.model.similarity_fn_name in ("cosine", "dot") else self.model.similarity_pairwise
        return Problem(queries, corpus, pairs.positives, pairs.most_rows, similarity=similarity)

    def _side(self, kind: str, texts: list[str], prompt: Prompt, pool: Any) -> Side:
        keep_floats = self.search.rescore
        codes = torch.empty(len(texts), self.search.bits // 8, dtype=torch.uint8)
        hasher = None
        with (
            Store(self._store(kind, texts, prompt), len(texts), np.float32 if keep_floats else np.uint8) as store,
            progress_bar(f"encoding {len(texts):,} texts ({kind})", len(texts), shown=self.progress) as bar,
        ):
            self.kept[kind] = store.kept
            for j in range(store.num_chunks):
                rows = store.read(j)
                if rows is None:
                    store.claim()  # before the work of encoding, not after it
                    rows = store.read(j)
                    self.kept[kind] = store.kept
                if rows is not None:
                    bar.advance(len(rows))
                if rows is not None and not keep_floats:
                    codes[j :: store.num_chunks] = torch.from_numpy(rows)
                    continue
                these = [texts[i] for i in store.chunk(j)]
                x = self._embed(kind, these, prompt, pool, bar) if rows is None else torch.from_numpy(rows)
                hasher = hasher or self._hasher(x)
                hashed, finite = hasher.encode_flagged(x)
                if not bool(finite.all()):
                    text = these[int((~finite).nonzero()[0])]
                    raise ValueError(
                        f"the model returns NaN or infinity for the text {text[:60]!r}; check for damaged weights, or "
                        "load it in a wider precision."
                    )
                codes[j :: store.num_chunks] = hashed.cpu()
                if rows is None:
                    store.write(j, (x if keep_floats else hashed).cpu().numpy())
                    self.kept[kind] = store.kept
            return Side(codes, store.rows() if keep_floats else None)

    def _store(self, kind: str, texts: list[str], prompt: Prompt) -> Path:
        """Return the folder for these texts, named after everything that their embeddings or codes depend on."""
        rescore, bits, center = self.search.rescore, self.search.bits, self.search.center
        depends_on = [kind, fingerprint(self.model), repr((*prompt, Store.CHUNK, rescore))]
        if not rescore:
            depends_on.append(f"{bits} bits, center {center}")
        return self.folder / f"{kind}-{checksum([*depends_on, *texts])[:24]}"

    def _hasher(self, first: Tensor) -> SignHasher:
        """Make the hasher for embeddings like those of the first chunk, whose mean is that of all texts."""
        if self.mean is None:
            mean = first.mean(0, dtype=torch.float64)
            self.mean = torch.nan_to_num(mean).cpu()  # one bad text must not spoil the codes of others
        hasher = SignHasher(first.shape[1], self.search.bits, center=self.search.center)
        hasher.set_mean(self.mean, len(first))
        return hasher

    def _embed(self, kind: str, texts: list[str], prompt: Prompt, pool: Any, bar: Bar) -> Tensor:
        """Return normalised embeddings, float32, on the device of the model."""
        encode = self.model.encode_query if kind == "query" else self.model.encode_document
        with self._batches_shown(len(texts), bar):
            embeddings = encode(
                texts,
                batch_size=self.batch_size,
                prompt=prompt[0],
                prompt_name=prompt[1],
                pool=pool,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_tensor=pool is None,
                convert_to_numpy=pool is not None,
            )
        tensor: Tensor = torch.as_tensor(embeddings).float()
        return tensor

    @contextmanager
    def _batches_shown(self, number: int, bar: Bar) -> Iterator[None]:
        """Advance the bar with every batch that the model encodes, by `number` texts in all.

        One call encodes a whole chunk, because the model sorts its texts by length to save padding. A hook on the
        model's first module sees the batches of a call, unless other processes encode them.
        """
        shown = 0

        def advance(*_: Any) -> None:
            nonlocal shown
            step = min(self.batch_size, number - shown)
            shown += step
            bar.advance(step)

        first = next(iter(self.model.children()), None) if self.progress and hasattr(self.model, "children") else None
        handle = None if first is None else first.register_forward_hook(advance)
        try:
            yield
        finally:
            if handle is not None:
                handle.remove()
        bar.advance(number - shown)


@contextmanager
def judging(
    cross_encoder: Any, pairs: Pairs, batch_size: int, devices: list[str] | bool
) -> Iterator[Callable[[Candidates], Candidates] | None]:
    """Yield a function that scores candidates with a cross-encoder; None without one."""
    if cross_encoder is None:
        yield None
        return
    with pool_of(cross_encoder, devices) as pool:
        more = {} if pool is None else {"pool": pool}

        def judge(found: Candidates) -> Candidates:
            there = found.indices >= 0
            rows = torch.cat([there.nonzero()[:, 0], row_numbers(found.positives)]).tolist()
            ids = torch.cat([found.indices[there], found.positives[1]]).tolist()
            texts = [(pairs.queries[found.first + q], pairs.corpus[i]) for q, i in zip(rows, ids, strict=True)]
            judged = cross_encoder.predict(
                texts, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False, **more
            )
            judged = judged.float().cpu()
            scores = torch.full(found.scores.shape, MISSING)
            number = int(there.sum())
            scores[there] = judged[:number]
            return replace(found, scores=scores, positive_scores=judged[number:])

        yield judge


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


@contextmanager
def folder_or_temporary(folder: str | Path | None) -> Iterator[Path]:
    """Yield the folder, created if needed, or by default a temporary one that is removed afterwards.

    Raises:
        UnwritableError: The folder cannot be created.
    """
    if folder is not None:
        with writable(Path(folder)):
            Path(folder).mkdir(parents=True, exist_ok=True)
        yield Path(folder)
        return
    temporary = Path(tempfile.mkdtemp(prefix="lookalike-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def checksum(texts: Iterable[str]) -> str:
    """Return a checksum of texts, their order, and where one ends and the next begins."""
    digest = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", errors="surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


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
