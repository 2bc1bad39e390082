"""Texts -> codes: a model encodes chunk by chunk, and floats are hashed as they come out of it."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing import SignHasher
from lookalike.mining.store import CHUNK, Store
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from lookalike.mining.rows import Rows
    from lookalike.utils.progress import Bar

SAMPLED = 256  # values per weight that are looked at in their order
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Encoded:
    """Texts as codes in memory and, where they are kept, as floats on disk."""

    codes: Tensor  # uint8 [n, bits / 8]
    floats: Rows | None
    mean: Tensor | None  # float64 [dim], what the codes are centred by


@dataclass(frozen=True)
class Encoder:
    """A sentence-transformers model, and where what it makes of texts is kept.

    With floats, these are kept and codes are made of them again when a run is resumed, so that another number of bits
    encodes nothing. Without, the codes are kept; they are not centred then, which takes no mean.
    """

    model: Any
    folder: Path
    bits: int
    center: float
    keep_floats: bool
    batch_size: int
    pool: Any = None
    progress: bool = False
    kept: dict[str, int] = field(default_factory=dict)  # texts on disk, by their kind

    def encoded(
        self, kind: str, texts: list[str], prompt: str | None, prompt_name: str | None, mean: Tensor | None = None
    ) -> Encoded:
        """Encode those texts that are not in the folder yet.

        Args:
            kind: "document" or "query".
            texts: What is encoded.
            prompt: Stands before each text.
            prompt_name: Or a prompt of the model's.
            mean: What codes are centred by; by default the mean of the first chunk.

        Raises:
            ValueError: The model gives NaN, or another process encodes the same texts in the same folder.
            DiskFullError: There is no room.
            UnwritableError: The folder cannot be written to.
        """
        depends_on = [kind, fingerprint(self.model), repr((prompt, prompt_name, CHUNK, self.keep_floats))]
        if not self.keep_floats:
            depends_on.append(f"{self.bits} bits, center {self.center}")
        folder = self.folder / f"{kind}-{checksum([*depends_on, *texts])[:24]}"
        codes = torch.empty(len(texts), self.bits // 8, dtype=torch.uint8)
        hasher = None
        with (
            Store(folder, len(texts), np.float32 if self.keep_floats else np.uint8) as store,
            progress_bar(f"encoding {len(texts):,} texts ({kind})", len(texts), shown=self.progress) as bar,
        ):
            self.kept[kind] = store.kept
            for j in range(store.num_chunks):
                rows = store.read(j)
                if rows is None:
                    store.claim()  # before the work of encoding, and not after it
                    rows = store.read(j)
                    self.kept[kind] = store.kept
                if rows is not None and not self.keep_floats:
                    codes[j :: store.num_chunks] = torch.from_numpy(rows)
                    bar.advance(len(rows))
                    continue
                these = [texts[i] for i in store.chunk(j)]
                if rows is not None:
                    x = torch.from_numpy(rows)
                    bar.advance(len(rows))
                else:
                    x = self._embedded(kind, these, prompt, prompt_name, bar)
                if hasher is None:
                    hasher = SignHasher(x.shape[1], self.bits, center=self.center)
                    centre = x.mean(0, dtype=torch.float64) if mean is None else mean
                    hasher.mean.copy_(torch.nan_to_num(centre))  # one bad text must not spoil the codes of others
                hashed, finite = hasher.encode_flagged(x)
                if not bool(finite.all()):
                    text = these[int((~finite).nonzero()[0])]
                    raise ValueError(
                        f"the model gives NaN or infinity for the text {text[:60]!r}; look for damaged weights, or "
                        "load it in a wider precision."
                    )
                codes[j :: store.num_chunks] = hashed.cpu()
                if rows is None:
                    store.write(j, (x if self.keep_floats else hashed).cpu().numpy())
                    self.kept[kind] = store.kept
            floats = store.rows() if self.keep_floats else None
        return Encoded(codes, floats, None if hasher is None else hasher.mean.cpu())

    def _embedded(self, kind: str, texts: list[str], prompt: str | None, prompt_name: str | None, bar: Bar) -> Tensor:
        """Return normalised embeddings, float32, on the device of the model."""
        encode = self.model.encode_query if kind == "query" else self.model.encode_document
        here = self.pool is None
        with self._batches_shown(len(texts), bar):
            embeddings = encode(
                texts,
                batch_size=self.batch_size,
                prompt=prompt,
                prompt_name=prompt_name,
                pool=self.pool,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_tensor=here,
                convert_to_numpy=not here,
            )
        tensor: Tensor = torch.as_tensor(embeddings).float()
        return tensor

    @contextmanager
    def _batches_shown(self, number: int, bar: Bar) -> Iterator[None]:
        """Advance the bar with every batch that the model encodes, by `number` texts in all.

        One call encodes a whole chunk, because the model sorts its texts by length to save padding; the batches of a
        call are seen where its first module is called. In other processes they are not.
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


def checksum(texts: Iterable[str]) -> str:
    """Of texts and their order; where one ends and the next begins counts."""
    digest = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", errors="surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def fingerprint(model: Any) -> str:
    """Tells models apart: a checksum of their modules, prompts and weights.

    The name is not enough, as a model that was trained further keeps it.
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
