"""What `mine_hard_negatives` does once its arguments are checked: read, encode, search, filter, write."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lookalike.mining.cells import Grid, default_block
from lookalike.mining.dataset_folders import write_card, writing_folder
from lookalike.mining.encoding import CrossEncoderScores, EncodedTexts, Encoder, identify, pool_of
from lookalike.mining.engines import Shard
from lookalike.mining.engines.on_ray import OnRay
from lookalike.mining.estimating import DryRun
from lookalike.mining.fitting import text_fitting
from lookalike.mining.formats import ShardWriter, check_rows, make_dataset, make_rows, writing_rows
from lookalike.mining.job import folder_or_temporary, held_job, settings_of
from lookalike.mining.judging import Judge, likely_path, writing_likely
from lookalike.mining.outputs import Tally, interruptible, print_written, summary_record, write_summary
from lookalike.mining.pipeline import Pipeline
from lookalike.mining.reading import about, read_once
from lookalike.mining.run import Run
from lookalike.mining.same import excluded_texts
from lookalike.mining.sources import check_prompts, load_model, load_models
from lookalike.mining.stages import complete, fitted
from lookalike.mining.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from lookalike.hashing import ScalarHasher
    from lookalike.mining import Search, Selection
    from lookalike.mining.encoding import Prompt
    from lookalike.mining.engines import Engine
    from lookalike.mining.formats import Layout, Row
    from lookalike.mining.job import Job
    from lookalike.mining.outputs import Summary
    from lookalike.mining.pair_files import PairFiles
    from lookalike.mining.text_sources import PairBatch, TextSource
    from lookalike.negatives import Filters

logger = logging.getLogger("lookalike")


@dataclass(kw_only=True)
class TextMining:
    """The checked arguments of `mine_hard_negatives`, and what becomes of them on the way."""

    pairs: TextSource[PairBatch]
    corpus: tuple[Iterable[list[str]], dict[str, Any] | None]  # batches, and what tells their files from others
    same: Any
    model: Any
    device: str | None
    batch_size: int
    devices: list[str] | bool
    prompts: dict[str, Prompt]
    cross_encoder: Any
    judge: Any
    judge_margin: float
    selection: Selection
    filters: Filters
    search: Search
    layout: Layout
    output: Path | None
    cache: str | Path | None
    force: bool
    source: Mapping[str, Any] | None
    block: int | None
    engine: Engine
    verbose: bool
    sides: list[EncodedTexts] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def mine(self) -> Any:
        """Read, encode, search, filter and write.

        Returns:
            A data set, or with an output its `Summary`; the `Estimate` of a `DryRun`; None from a `Shard`.
        """
        console = Console(quiet=not self.verbose)
        result: Any = None
        with interruptible(self.output, self._kept):
            with ExitStack() as stack:
                job = stack.enter_context(held_job(self.output, self.engine, force=self.force))
                stores = stack.enter_context(folder_or_temporary(self.cache))
                pairs = read_once(job, self.pairs, *self.corpus)
                if self.pairs.reads_files:
                    columns = " and ".join(self.pairs.columns) + ("" if self.pairs.named is None else " (no header)")
                    console.print(
                        f"{pairs.num_rows:,} pairs from the columns {columns}.", highlight=False, markup=False
                    )
                texts = f"{len(pairs.queries):,} queries, {len(pairs.corpus):,} texts to search."
                console.print(texts, highlight=False)
                run = self._run(job, stores, pairs, stack)
                began = time.perf_counter()
                if isinstance(self.engine, DryRun):
                    return self.engine.measured(run, console)
                complete(run, self.engine, progress=self.verbose)
                if isinstance(self.engine, Shard):
                    return None
                if self.output is None:
                    rows = make_rows(pairs, self.tally.counted(run.parts()), self.layout)
                    result = make_dataset(rows, self.layout)
                    summary = self.tally.summary(len(pairs.corpus))
                else:
                    summary, number = self._write(self.output, run, pairs, began)
            summary.show(console, self.selection.num_negatives)
            if self.output is not None:
                print_written(console, self.output, number)
            if not self.verbose and (without := sum(summary.queries_without.values())):
                logger.warning("%d of %d queries have no negative left.", without, len(pairs.queries))
        return result if self.output is None else summary

    def _run(self, job: Job, stores: Path, pairs: PairFiles, stack: ExitStack) -> Run:
        """Load models, and put everything together that cells need."""
        encoder = stack.enter_context(
            Encoder(self.model, self.device, self.batch_size, self.devices, progress=self.verbose)
        )
        encoder.model, cross_encoder = load_models(self.model, self.cross_encoder, self.device, progress=self.verbose)
        check_prompts(encoder.model, *(name for _, name in self.prompts.values()))
        exclude = None if self.same is None else excluded_texts(self.same, pairs)
        job.check_same({"data": about(pairs, exclude), "model": encoder.fingerprint, "prompts": repr(self.prompts)})
        job.keep_pairs(pairs.folder)
        scored_by = judge = None
        if cross_encoder is not None and self.filters.on_scores:
            pool = stack.enter_context(pool_of(cross_encoder, self.devices))
            scored_by = CrossEncoderScores(cross_encoder, pairs.queries, pairs.corpus, self.batch_size, pool)
        if self.judge is not None:
            given = load_model(self.judge, self.device, "CrossEncoder") if isinstance(self.judge, str) else self.judge
            judge = Judge(given, pairs.queries, pairs.corpus, self.judge_margin)
        pipeline = Pipeline(
            self.selection, self.filters, self.search, pairs.most_rows, scored_by, judge, encoder.similarity
        )
        block = default_block(len(pairs.queries), pairs.most_rows) if self.block is None else self.block
        hasher = self._hasher(stores, pairs, encoder, stack)
        scheme = None if hasher is None else hasher.scheme.identity
        cells = job.cells(self.search.settings(), scheme, pipeline.shortlist, block)
        for kind, texts in (("document", pairs.corpus), ("query", pairs.queries)):
            prompt = self.prompts[kind]
            self.sides.append(EncodedTexts(kind, texts, encoder, prompt, self.search, stores, cells, block, hasher))
        scorers = [None if each is None else identify(each) for each in (cross_encoder, judge and judge.given)]
        return Run(
            folder=cells,
            finished=job.cells(
                settings_of(pipeline), scheme, block, self.layout, *scorers, self.judge_margin, encoder.how_compared
            ),
            grid=Grid(len(pairs.queries), len(pairs.corpus), itself=False, encodes=True, block=block),
            sides={side.side: side for side in self.sides},
            pipeline=pipeline,
            positives=pairs.positives,
            labels=None,
            exclude=exclude,
            device=self.device if isinstance(self.engine, OnRay) else str(encoder.model.device),
            writer=None if self.output is None or self.output.suffix else ShardWriter(self.layout, pairs),
            scalar=hasher,
        )

    def _hasher(self, stores: Path, pairs: PairFiles, encoder: Encoder, stack: ExitStack) -> ScalarHasher | None:
        """Fit codes of several bits to a sample of the texts; None for signs, and where nothing is to be encoded."""
        if not self.search.is_scalar or isinstance(self.engine, DryRun):
            return None
        stack.enter_context(self.engine.connected())
        fitting = text_fitting(stores, pairs.corpus, encoder, self.prompts["document"], self.search.length)
        return fitted(fitting, self.engine, progress=self.verbose)

    def _write(self, output: Path, run: Run, pairs: PairFiles, began: float) -> tuple[Summary, int]:
        """Write rows and everything beside them; return the summary and the number of rows."""
        parts = self.tally.counted(run.parts())
        with ExitStack() as stack:
            if output.suffix:
                then = f"what was encoded is kept in {self.cache}; make room and run it again"
                rows = self._refusing_none(make_rows(pairs, parts, self.layout))
                place, number = output, stack.enter_context(writing_rows(output, rows, then))
            else:
                shards = [(run.rows_path(cell), part.rows) for cell, part in zip(run.finishes, parts, strict=True)]
                self.tally.check_any()
                number = sum(rows for _, rows in shards)
                check_rows(number, output)
                place = stack.enter_context(writing_folder(output, shards))
            if run.pipeline.judge is not None:
                likely = writing_likely(likely_path(place), pairs.queries, pairs.corpus, run.parts())
                stack.enter_context(likely)
            summary = self.tally.summary(len(pairs.corpus))
            chosen = self.selection, self.filters, self.search
            more: dict[str, Any] = {"seconds": time.perf_counter() - began, "rows": number}
            more |= {"source": self.source, "pairs": pairs.num_rows}
            if output.suffix:
                write_summary(output, summary, *chosen, likely=likely_path(output), **more)
            else:
                record = summary_record(output, summary, *chosen, **more)
                record["output_format"] = self.layout.output_format
                write_card(place, output.absolute().name, self.layout.columns, _name_of(self.model), record)
        return summary, number

    def _refusing_none(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Pass rows on.

        Raises:
            ValueError: No query has a negative.
        """
        yield from rows
        self.tally.check_any()

    def _kept(self) -> str | None:
        """Say what the next run can resume from."""
        if self.cache is None:
            return None
        kept = {key: number for side in self.sides for key, number in (*side.done(), *side.kept.items())}
        number, total = sum(kept.values()), sum(len(side.texts) for side in self.sides)
        if number:
            return (
                f"Interrupted: {number:,} of {total:,} texts are encoded and kept in {self.cache}; the next run "
                "resumes from there."
            )
        before = f"the first chunk of up to {Store.CHUNK:,} texts" if kept else "anything"
        return f"Interrupted before {before} was encoded: nothing new is kept."


def _name_of(model: Any) -> str | None:
    """Return the name that a SentenceTransformer was loaded by, if it says so."""
    if isinstance(model, str):
        return model
    card = getattr(model, "model_card_data", None)
    name = getattr(card, "base_model", None) or getattr(card, "model_id", None)
    return name if isinstance(name, str) else None
