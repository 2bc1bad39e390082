"""Pairs of texts -> hard negatives, with a model that is there: `mine_hard_negatives`, as in sentence-transformers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from lookalike.mining.options import BITS, FORMATS, FROM_TEXTS, Options
from lookalike.mining.pairs import checked_texts, paired
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["mine_hard_negatives"]

logger = logging.getLogger("lookalike")


def mine_hard_negatives(
    dataset: Any,
    model: Any,
    anchor_column_name: str | None = None,
    positive_column_name: str | None = None,
    corpus: Sequence[str] | None = None,
    cross_encoder: Any = None,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    num_negatives: int = 3,
    sampling_strategy: str = "top",
    query_prompt_name: str | None = None,
    query_prompt: str | None = None,
    corpus_prompt_name: str | None = None,
    corpus_prompt: str | None = None,
    include_positives: bool = False,
    output_format: str = "triplet",
    output_scores: bool = False,
    batch_size: int = 32,
    faiss_batch_size: int = 16384,
    use_faiss: bool = False,  # noqa: ARG001 - the search is in bits, with or without
    use_multi_process: list[str] | bool = False,
    verbose: bool = True,
    cache_folder: str | Path | None = None,
    as_triplets: bool | None = None,
    margin: float | None = None,
    *,
    bits: int = BITS,
    rescore: bool | int = True,
) -> Any:
    """Add hard negatives to pairs of texts: `sentence_transformers.util.mine_hard_negatives`, searched in bits.

    Arguments, columns, rows and their order are those of sentence-transformers. Embeddings are hashed as the model
    gives them, a few thousand at a time; the corpus never exists as floats in memory. The bits find a shortlist, and
    its floats, which are kept in a file, give its order and its scores.

    Args:
        dataset: A `datasets.Dataset` of pairs. A query that stands in several rows has several positives.
        model: A `SentenceTransformer`.
        anchor_column_name: The queries; by default the first column.
        positive_column_name: What answers them; by default the second column.
        corpus: Further texts that may become negatives.
        cross_encoder: A `CrossEncoder`, whose scores the filters below are applied to.
        range_min: Skip this many of the best candidates.
        range_max: Look at no more than this many; by default as many as the filters are likely to need.
        max_score: Drop candidates that score higher.
        min_score: Drop candidates that score lower.
        absolute_margin: Drop candidates above the lowest score of the query's positives minus this.
        relative_margin: Drop candidates above that score minus this share of its magnitude.
        num_negatives: Negatives per query.
        sampling_strategy: The "top" of what is left, or "random" ones of it.
        query_prompt_name: A prompt of the model's for queries.
        query_prompt: Or the prompt itself.
        corpus_prompt_name: Likewise for the corpus.
        corpus_prompt: Likewise for the corpus.
        include_positives: Leave positives among the candidates; the format is then "n-tuple".
        output_format: "triplet", "n-tuple", "labeled-pair" or "labeled-list".
        output_scores: Add scores; they take the place of labels.
        batch_size: Texts that are encoded at a time.
        faiss_batch_size: The most queries that are searched at a time.
        use_faiss: Changes nothing: the search is in bits.
        use_multi_process: Encode on several devices, or on those of a list.
        verbose: Print statistics, and show bars on a terminal.
        cache_folder: Where codes and floats are kept, so that a run that was stopped resumes with what it has encoded,
            and another one with the same model and texts encodes nothing. One process at a time may add to it.
        as_triplets: Deprecated: `output_format` is "triplet" or "n-tuple".
        margin: Deprecated: `absolute_margin`.
        bits: Length of the codes, a multiple of 8.
        rescore: Score a shortlist exactly. True takes four times as many as are looked at, and at least 64; a number
            takes that many times as many. False scores by bits alone: no floats are kept, and a score is the cosine
            that a Hamming distance h implies, cos(pi * h / bits).

    Returns:
        A `datasets.Dataset`. A query without a negative is left out and reported, never filled up.

    Raises:
        ImportError: datasets is not installed.
        TypeError: A text is no text, or an argument is of the wrong kind.
        ValueError: There are no such columns, a text is empty, or an argument is out of range.
        DiskFullError: There is no room for codes and floats; those that are written are kept.
        UnwritableError: The cache folder cannot be written to.
        FolderInUseError: Another process encodes the same texts in the same cache folder.

    Examples:
        >>> from lookalike import mine_hard_negatives
        >>> model = SentenceTransformer("all-MiniLM-L6-v2")  # doctest: +SKIP
        >>> pairs = Dataset.from_json("pairs.jsonl")  # doctest: +SKIP
        >>> triplets = mine_hard_negatives(pairs, model, relative_margin=0.05)  # doctest: +SKIP

        What is wrong is said before anything is encoded:

        >>> mine_hard_negatives({"query": ["one"], "answer": ["1"]}, "all-MiniLM-L6-v2")
        Traceback (most recent call last):
        ...
        TypeError: model must be a SentenceTransformer, got str; load it with SentenceTransformer('all-MiniLM-L6-v2').
    """
    output_format, output_scores, absolute_margin = _modernized(
        output_format, output_scores, absolute_margin, as_triplets=as_triplets, margin=margin
    )
    options = Options(
        num_negatives=num_negatives,
        range_min=range_min,
        range_max=range_max,
        max_score=max_score,
        min_score=min_score,
        absolute_margin=absolute_margin,
        relative_margin=relative_margin,
        sampling_strategy=sampling_strategy,
        include_positives=include_positives,
        bits=bits,
        rescore=rescore,
        queries_at_a_time=faiss_batch_size,
    )
    if include_positives and output_format != "n-tuple":
        logger.warning("include_positives gives n-tuples, as only their order tells positives from negatives.")
        output_format = "n-tuple"
    if output_format not in FORMATS:
        raise ValueError(f"output_format must be one of {', '.join(map(repr, FORMATS))}, got {output_format!r}.")
    check_model(model, query_prompt_name, corpus_prompt_name)
    optional_import("datasets", *FROM_TEXTS)
    anchor, positive = _columns(dataset, anchor_column_name, positive_column_name)
    pairs = paired(
        checked_texts(f"column {anchor!r}", dataset[anchor]),
        checked_texts(f"column {positive!r}", dataset[positive]),
        None if corpus is None else checked_texts("corpus", corpus),
    )

    from rich.console import Console  # noqa: PLC0415 - with what follows, only once the input is known to be good

    from lookalike.mining.formats import Layout  # noqa: PLC0415
    from lookalike.mining.summary import print_summary, summarized  # noqa: PLC0415
    from lookalike.mining.tables import as_dataset  # noqa: PLC0415
    from lookalike.mining.texts import Prompts, mine_texts  # noqa: PLC0415

    prompts = Prompts(
        query=query_prompt, query_name=query_prompt_name, corpus=corpus_prompt, corpus_name=corpus_prompt_name
    )
    mined = mine_texts(
        pairs,
        model,
        options,
        prompts=prompts,
        cross_encoder=cross_encoder,
        batch_size=batch_size,
        multi_process=use_multi_process,
        cache_folder=cache_folder,
        progress=verbose,
    )
    summary = summarized(mined)
    if verbose:
        print_summary(Console(), summary, num_negatives)
    elif without := sum(summary["queries_without"].values()):
        logger.warning("%d of %d queries have no negative left.", without, len(pairs.queries))
    return as_dataset(mined, Layout(output_format, output_scores, anchor, positive))


def check_model(model: Any, *prompt_names: str | None) -> None:
    """Refuse what cannot encode, and prompts it does not have, before the corpus is encoded."""
    if not hasattr(model, "encode_query") or not hasattr(model, "encode_document"):
        hint = f"; load it with SentenceTransformer({model!r})" if isinstance(model, str) else ""
        raise TypeError(f"model must be a SentenceTransformer, got {type(model).__name__}{hint}.")
    for name in prompt_names:
        if name is not None and name not in model.prompts:
            known = ", ".join(map(repr, model.prompts)) or "none"
            raise ValueError(f"the model has no prompt named {name!r}; it has {known}. Give the prompt itself instead.")


def _modernized(
    output_format: str, scores: bool, absolute: float | None, *, as_triplets: bool | None, margin: float | None
) -> tuple[str, bool, float | None]:
    """What deprecated arguments mean today."""
    if as_triplets is not None:
        output_format = "triplet" if as_triplets else "n-tuple"
        logger.warning("as_triplets is deprecated: say output_format=%r.", output_format)
    if output_format == "n-tuple-scores":
        logger.warning("output_format='n-tuple-scores' is deprecated: say 'n-tuple' and output_scores=True.")
        output_format, scores = "n-tuple", True
    if margin is not None:
        logger.warning("margin is deprecated: say absolute_margin=%s.", margin)
        absolute = margin
    return output_format, scores, absolute


def _columns(dataset: Any, anchor: str | None, positive: str | None) -> tuple[str, str]:
    """What the columns of queries and positives are called."""
    if not hasattr(dataset, "column_names") or isinstance(dataset.column_names, dict):
        raise TypeError(
            f"dataset must be a datasets.Dataset, got {type(dataset).__name__}; take one split of a DatasetDict, or "
            "make one of columns with Dataset.from_dict."
        )
    names = list(dataset.column_names)
    for name, option in ((anchor, "anchor_column_name"), (positive, "positive_column_name")):
        if name is not None and name not in names:
            raise ValueError(f"{option} is {name!r}, but the data set has the columns {', '.join(names)}.")
    if len(names) < 2:
        raise ValueError(
            f"the data set must have two columns, queries and positives, got {', '.join(names) or 'none'}."
        )
    if len(dataset) == 0:
        raise ValueError("the data set has no rows; mining needs pairs of a query and a positive.")
    return anchor or names[0], positive or names[1]
