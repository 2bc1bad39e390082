"""Let a judge decide about suspicious candidates: those whose embeddings are as near to the query as its positives."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lookalike.mining.pipeline import MISSING, Likely
from lookalike.utils.files import replacing, room_for
from lookalike.utils.lists import row_numbers, take_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch import Tensor

    from lookalike.mining.pipeline import Candidates, Part
    from lookalike.mining.text_files import TextFile

BATCH = 1024  # pairs to judge at a time


@dataclass(frozen=True)
class Judge:
    """Scores a query with its suspicious candidates and its positives; candidates that score as high are dropped.

    Args:
        given: Takes a list of pairs of texts and returns a score for each, or has `predict` as a `CrossEncoder` does.
        queries: The queries.
        corpus: The texts that are searched.
        margin: A candidate is suspicious if its score is at most this much below that of the query's lowest positive.
    """

    given: Any
    queries: TextFile
    corpus: TextFile
    margin: float = 0.05

    def decide(self, found: Candidates) -> tuple[Tensor, Likely]:
        """Return which candidates are likely positives, bool [q, wanted], and what is known of them."""
        scores = found.scores.masked_fill(found.is_positive, MISSING)
        suspicious = (scores != MISSING) & (scores >= (found.hardest - self.margin)[:, None])
        rows, places = suspicious.nonzero(as_tuple=True)
        asked = torch.unique(rows)
        answers = take_lists(found.positives, asked)
        owners = asked[row_numbers(answers)]
        judged = self._judged(
            torch.cat([rows, owners]) + found.first, torch.cat([found.indices[suspicious], answers[1]])
        )
        lowest = torch.full((len(scores),), torch.inf).scatter_reduce(0, owners, judged[len(rows) :], "amin")
        above = judged[: len(rows)] >= lowest[rows]
        likely = torch.zeros_like(suspicious)
        likely[rows[above], places[above]] = True
        about = Likely(
            rows[above] + found.first,
            found.indices[likely],
            found.scores[likely],
            judged[: len(rows)][above],
            lowest[rows[above]],
        )
        return likely, about

    def _judged(self, queries: Tensor, ids: Tensor) -> Tensor:
        """Score pairs of a query and a text, float32 [m].

        Raises:
            ValueError: The judge does not return one finite number per pair.
        """
        scores = [torch.empty(0)]
        for first in range(0, len(queries), BATCH):
            part = slice(first, first + BATCH)
            texts = list(zip(self.queries.take(queries[part]), self.corpus.take(ids[part]), strict=True))
            found = (
                self.given.predict(texts, show_progress_bar=False)
                if hasattr(self.given, "predict")
                else self.given(texts)
            )
            try:
                judged = torch.as_tensor(found).detach().float().cpu()
            except (TypeError, ValueError, RuntimeError):
                raise ValueError(
                    f"the judge must return one finite score per pair, [{len(texts)}], got {type(found).__name__}."
                ) from None
            if judged.shape != (len(texts),) or not bool(torch.isfinite(judged).all()):
                raise ValueError(
                    f"the judge must return one finite score per pair, [{len(texts)}], got {list(judged.shape)}"
                    f"{'' if judged.shape != (len(texts),) else ' with NaN or infinity'}."
                )
            scores.append(judged)
        return torch.cat(scores)


def likely_path(output: Path) -> Path:
    """Return the file of likely positives that belongs to an output: beside it, or in its folder."""
    name = "likely_positives.jsonl"
    is_file = output.suffix and not output.is_dir()  # a folder that is not complete yet has a suffix as well
    return output.with_name(f"{output.stem}.{name}") if is_file else output / name


@contextmanager
def writing_likely(path: Path, queries: TextFile, corpus: TextFile, parts: Iterable[Part]) -> Iterator[None]:
    """Write the likely positives of all queries, a JSON object per line, and move the file to its place at the end."""
    with replacing(path) as temporary:
        with room_for(str(path), "make room and run it again"), temporary.open("w", encoding="utf-8") as file:
            for likely in (part.likely for part in parts if part.likely is not None):
                texts = zip(queries.take(likely.queries), corpus.take(likely.ids), strict=True)
                numbers = zip(*(each.tolist() for each in likely[2:]), strict=True)
                for (query, text), (score, judged, lowest) in zip(texts, numbers, strict=True):
                    row = {"query": query, "text": text, "score": score, "judged": judged, "lowest_positive": lowest}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
        yield
