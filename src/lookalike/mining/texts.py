"""Pairs of texts and a model -> rows with hard negatives: `mine_hard_negatives`, as in sentence-transformers."""

from __future__ import annotations

import logging
from os import PathLike
from typing import TYPE_CHECKING, Any

from lookalike.mining import Code, Rescore, Search, Selection, Strategy
from lookalike.mining.engines import checked_engine
from lookalike.mining.formats import Layout, has_folders, output_suffixes
from lookalike.mining.models import as_model
from lookalike.mining.outputs import checked_output, work_folder
from lookalike.mining.pipeline import QUERIES
from lookalike.mining.sources import FROM_TEXTS, check_models
from lookalike.mining.text_mining import TextMining
from lookalike.mining.text_sources import TextSource, open_corpus, open_pairs, text_batches
from lookalike.negatives.filters import Filters
from lookalike.utils.checks import Range, checked_positive
from lookalike.utils.imports import optional_import
from lookalike.utils.lengthless import refuse_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lookalike.mining.engines import Engine

logger = logging.getLogger("lookalike")


def mine_hard_negatives(
    dataset: Any,
    model: Any,
    anchor_column_name: str | None = None,
    positive_column_name: str | None = None,
    corpus: Any = None,
    cross_encoder: Any = None,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    num_negatives: int = 3,
    sampling_strategy: Strategy = "top",
    query_prompt_name: str | None = None,
    query_prompt: str | None = None,
    corpus_prompt_name: str | None = None,
    corpus_prompt: str | None = None,
    include_positives: bool = False,
    output_format: str = "triplet",
    output_scores: bool = False,
    batch_size: int = 32,
    faiss_batch_size: int = QUERIES,
    use_faiss: bool = False,  # noqa: ARG001 - the search is in bits either way
    use_multi_process: list[str] | bool = False,
    verbose: bool = True,
    cache_folder: str | Path | None = None,
    as_triplets: bool | None = None,
    margin: float | None = None,
    *,
    bits: int | None = None,
    code: Code | None = None,
    rescore: Rescore = "floats",
    oversampling: int | None = None,
    seed: int | None = None,
    same: Any = None,
    device: str | None = None,
    output: str | Path | None = None,
    force: bool = False,
    source: Mapping[str, Any] | None = None,
    judge: Any = None,
    judge_margin: float = 0.05,
    block: int | None = None,
    engine: Engine | None = None,
) -> Any:
    """Add hard negatives to pairs of texts: `sentence_transformers.util.mine_hard_negatives`, searched in bits.

    Arguments, columns, rows and their order are those of sentence-transformers; the arguments after `margin` are new.
    Embeddings are hashed as they leave the model, a few thousand at a time, and the corpus never exists as floats in
    memory. The bits find a shortlist, and its floats, which are kept in a file, give its order and its scores; or with
    `rescore="codes"` the codes do.

    Args:
        dataset: A `datasets.Dataset` of pairs, a stream of Hugging Face, or files: a .jsonl, .json, .parquet, .tsv or
            .csv file, a pattern such as "pairs/*.parquet", or a folder of them. They are read in one pass, and no list
            of all texts is kept in memory. A query in several rows has several positives.
        model: A `SentenceTransformer`, or the folder or name of one; or any encoder: a function that turns a list of
            texts into floats [n, dim], or an object whose `encode` does.
        anchor_column_name: The column of queries; by default the first one.
        positive_column_name: The column of the texts that answer them; by default the second one.
        corpus: Further texts that may become negatives: a list, or files as above, also .txt with one text per line.
        cross_encoder: A `CrossEncoder`, or the folder or name of one; the filters below then apply to its scores.
        range_min: Skip this many of the nearest candidates.
        range_max: Highest rank to consider; by default as many as the filters are likely to need.
        max_score: Drop candidates that score higher.
        min_score: Drop candidates that score lower.
        absolute_margin: Drop candidates above the lowest score of the query's positives minus this.
        relative_margin: Drop candidates above that score minus this fraction of its magnitude.
        num_negatives: Negatives per query.
        sampling_strategy: Take the "top" candidates that are left, or "random" ones.
        query_prompt_name: The name of one of the model's prompts, for queries.
        query_prompt: The prompt itself.
        corpus_prompt_name: The name of one of the model's prompts, for the corpus.
        corpus_prompt: The prompt itself.
        include_positives: Keep positives among the candidates; the format is then "n-tuple".
        output_format: "triplet", "n-tuple", "labeled-pair" or "labeled-list"; also "flagembedding" or "tevatron".
        output_scores: Add scores, or write them in place of labels.
        batch_size: Texts to encode at a time.
        faiss_batch_size: Has no effect: `block` says how many queries are searched at a time.
        use_faiss: Has no effect: the search is in bits.
        use_multi_process: Encode on several devices: all of them, or those in a list.
        verbose: Print statistics, and show progress on a terminal.
        cache_folder: Keep codes and floats here: a run that was stopped resumes with what it has encoded, and another
            run with the same model and texts encodes nothing. One process at a time may add to it.
        as_triplets: Deprecated; pass `output_format` "triplet" or "n-tuple" instead.
        margin: Deprecated; pass `absolute_margin` instead.
        bits: Length of the codes, a multiple of 8; by default 512, or 1024 if codes score.
        code: What the bits hold: "signs", one bit per rotated dimension, or "scalar", several bits for each principal
            component, for which a sample of 4,096 texts is encoded first; by default signs, or scalar if codes score.
        rescore: Score a shortlist with "floats"; or everything by "codes", and no floats are kept. A score is then the
            cosine that two codes imply: for signs at a Hamming distance h, cos(pi * h / bits).
        oversampling: Length of the shortlist, in multiples of the candidates considered; by default 4, and at least 64
            candidates.
        seed: Seed of random sampling; by default Python's global generator, as in sentence-transformers.
        same: Pairs of rows that a person marked as the same: row numbers of the data set, `[m, 2]`, or a file as
            `read_same` reads it. What answers one of the two is no negative of the other. With a `corpus`, a pair is
            instead a row of the data set and a text of the corpus that is no negative of it.
        device: Where to put models that are given by name; by default sentence-transformers chooses.
        output: Write the rows to this .jsonl or .parquet file, as they come, and a summary beside it; a name without a
            suffix is a data set folder, with a card, that `datasets.load_dataset` reads. Keep what is encoded in a
            folder beside it, unless there is a `cache_folder`, until the output is complete.
        force: Overwrite the output.
        source: Values to record in the summary, such as the file that the pairs come from.
        judge: Decides about suspicious candidates: a `CrossEncoder`, its folder or name, or a function that scores a
            list of pairs of texts. Candidates that it scores as high as the lowest of the query's positives are
            dropped, and written to a file of likely positives beside the output.
        judge_margin: A candidate is suspicious if its score is at most this much below that of the query's lowest
            positive.
        block: Rows that are encoded, searched and finished together; by default 131,072, or four times as many from 16
            million queries on, and fewer where a query has more than 64 positives. The result does not depend on it,
            unless negatives are drawn at random.
        engine: What does the work: by default this process; `Shard`, `Merge` or `OnRay` share it out.

    Returns:
        A `datasets.Dataset`, or with an `output` the `Summary` of what was written. A query without a negative is left
        out and reported, never padded. A `Shard` returns None: its share is kept beside the output until it is merged.

    Raises:
        ImportError: datasets or sentence-transformers is not installed.
        TypeError: A text is not a string, or an argument has the wrong type.
        ValueError: There are no such columns, a text is empty, or an argument is out of range.
        DiskFullError: There is no room for codes, floats or rows; what was encoded is kept.
        UnwritableError: The cache folder cannot be written to.
        FolderInUseError: Another process writes the same output, or encodes the same texts in the same cache folder.
        MiningInterrupted: Ctrl-C was pressed; says what the next run resumes from.

    Examples:
        >>> from lookalike import mine_hard_negatives
        >>> model = SentenceTransformer("all-MiniLM-L6-v2")  # doctest: +SKIP
        >>> pairs = Dataset.from_json("pairs.jsonl")  # doctest: +SKIP
        >>> triplets = mine_hard_negatives(pairs, model, relative_margin=0.05)  # doctest: +SKIP

        Errors come before anything is encoded:

        >>> mine_hard_negatives({"query": ["one"], "answer": ["1"]}, "all-MiniLM-L6-v2")
        Traceback (most recent call last):
        ...
        TypeError: dataset must be a datasets.Dataset, got dict; make one with Dataset.from_dict.
    """
    output_format, output_scores, absolute_margin = _modernized(
        output_format, output_scores, absolute_margin, as_triplets=as_triplets, margin=margin
    )
    selection = Selection(
        num_negatives=num_negatives,
        sampling_strategy=sampling_strategy,
        seed=seed,
        include_positives=include_positives,
    )
    filters = Filters(
        range_min=range_min,
        range_max=range_max,
        max_score=max_score,
        min_score=min_score,
        absolute_margin=absolute_margin,
        relative_margin=relative_margin,
    )
    filters.check_room(num_negatives, "num_negatives")
    search = Search(bits=bits, code=code, rescore=rescore, oversampling=oversampling)
    if oversampling is not None and not search.keeps_floats:
        raise ValueError('oversampling sets the length of the shortlist, but rescore="codes" needs none for texts.')
    checked_positive("faiss_batch_size", faiss_batch_size)
    if include_positives and output_format != "n-tuple":
        logger.warning("include_positives gives n-tuples, as only their order tells positives from negatives.")
        output_format = "n-tuple"
    path = checked_output(output, output_suffixes(output_format), force=force, folders=has_folders(output_format))
    engine = checked_engine(engine, path, selection, force=force)
    model = as_model(model)
    check_models(model, (cross_encoder, judge), device, query_prompt_name, corpus_prompt_name)
    if path is None:
        optional_import("datasets", *FROM_TEXTS)
    pairs = dataset
    if not isinstance(dataset, TextSource):
        pairs = open_pairs(dataset, _columns(dataset, anchor_column_name, positive_column_name))
    return TextMining(
        pairs=pairs,
        corpus=_opened_corpus(corpus),
        same=same,
        model=model,
        device=device,
        batch_size=batch_size,
        devices=use_multi_process,
        prompts={"document": (corpus_prompt, corpus_prompt_name), "query": (query_prompt, query_prompt_name)},
        cross_encoder=cross_encoder,
        judge=judge,
        judge_margin=Range(0, 2, with_high=True).check("judge_margin", judge_margin),
        selection=selection,
        filters=filters,
        search=search,
        layout=Layout(output_format, num_negatives, output_scores, *(pairs.named or pairs.columns)),
        output=path,
        cache=work_folder(path) if cache_folder is None and path is not None else cache_folder,
        force=force,
        source=source,
        block=None if block is None else checked_positive("block", block),
        engine=engine,
        verbose=verbose,
    ).mine()


def _modernized(
    output_format: str, scores: bool, absolute: float | None, *, as_triplets: bool | None, margin: float | None
) -> tuple[str, bool, float | None]:
    """Translate deprecated arguments."""
    if as_triplets is not None:
        output_format = "triplet" if as_triplets else "n-tuple"
        logger.warning("as_triplets is deprecated: pass output_format=%r.", output_format)
    if output_format == "n-tuple-scores":
        logger.warning("output_format='n-tuple-scores' is deprecated: pass 'n-tuple' and output_scores=True.")
        output_format, scores = "n-tuple", True
    if margin is not None:
        logger.warning("margin is deprecated: pass absolute_margin=%s.", margin)
        absolute = margin
    return output_format, scores, absolute


def _opened_corpus(corpus: Any) -> tuple[Iterable[list[str]], dict[str, Any] | None]:
    """Return batches of further texts, and what tells their files from others."""
    if corpus is None:
        return (), {}
    if isinstance(corpus, str | PathLike):
        corpus = open_corpus(corpus)
    if isinstance(corpus, TextSource):
        return corpus, corpus.identity
    refuse_stream("corpus", corpus, "mining needs further texts as a list, or as files")
    if not hasattr(corpus, "__len__") or hasattr(corpus, "column_names"):
        raise TypeError(f"corpus must be a list of texts, or files of them, got {type(corpus).__name__}.")
    return text_batches("corpus", corpus), None


def _columns(dataset: Any, anchor: str | None, positive: str | None) -> tuple[str, str] | None:
    """Return the names of the columns of queries and positives: of a data set by default the first two.

    None leaves the choice to known names, as files and some streams have them.
    """
    untold = getattr(dataset, "column_names", ()) is None  # of a stream, whose columns come with its first rows
    if untold or isinstance(dataset, str | PathLike | list | tuple):
        if (anchor is None) != (positive is None):
            what = "streams that do not name their columns" if untold else "files"
            raise ValueError(f"{what} need both anchor_column_name and positive_column_name, or neither.")
        return None if anchor is None or positive is None else (anchor, positive)
    if not hasattr(dataset, "column_names"):
        refuse_stream("dataset", dataset, "mining needs a data set with named columns")
    if not hasattr(dataset, "column_names") or isinstance(dataset.column_names, dict):
        hint = "take one of its splits" if hasattr(dataset, "column_names") else "make one with Dataset.from_dict"
        raise TypeError(f"dataset must be a datasets.Dataset, got {type(dataset).__name__}; {hint}.")
    names = list(dataset.column_names)
    for name, argument in ((anchor, "anchor_column_name"), (positive, "positive_column_name")):
        if name is not None and name not in names:
            raise ValueError(f"{argument} is {name!r}, but the data set has the columns {', '.join(names)}.")
    if len(names) < 2:
        found = ", ".join(names) or "none"
        raise ValueError(f"the data set must have two columns, queries and positives, got {found}.")
    if hasattr(dataset, "__len__") and len(dataset) == 0:
        raise ValueError("the data set has no rows; mining needs pairs of a query and a positive.")
    anchor, positive = anchor or names[0], positive or names[1]
    if anchor == positive:
        raise ValueError(
            f"queries and positives would both be column {anchor!r} of {', '.join(names)}; name the other one with "
            "anchor_column_name= or positive_column_name=."
        )
    return anchor, positive
