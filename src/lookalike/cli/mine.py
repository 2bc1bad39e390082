"""`lookalike mine`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from lookalike.cli.app import Device, app

NEGATIVES, SEARCH, TEXTS, EMBEDDINGS = "Which negatives", "Search", "Texts", "Embeddings"  # in the help


@app.command()
def mine(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="Pairs of texts: .jsonl, .json, .parquet, .tsv, .csv, or a data set's folder or name.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A sentence-transformers model: folder or name.", show_default=False, rich_help_panel=TEXTS),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help=".jsonl or .parquet; of embeddings .npy or .parquet.", show_default=False),
    ] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="triplet, n-tuple, labeled-pair, labeled-list, flagembedding or tevatron.",
            rich_help_panel=TEXTS,
        ),
    ] = "triplet",
    scores: Annotated[bool, typer.Option("--scores", help="Write scores as well.", rich_help_panel=TEXTS)] = False,
    num_negatives: Annotated[int, typer.Option(help="Negatives per query.", rich_help_panel=NEGATIVES)] = 3,
    range_min: Annotated[int, typer.Option(help="Skip so many of the nearest.", rich_help_panel=NEGATIVES)] = 0,
    range_max: Annotated[
        int | None, typer.Option(help="Look at so many.", show_default="what filters need", rich_help_panel=NEGATIVES)
    ] = None,
    max_score: Annotated[float | None, typer.Option(help="Drop what scores higher.", rich_help_panel=NEGATIVES)] = None,
    min_score: Annotated[float | None, typer.Option(help="Drop what scores lower.", rich_help_panel=NEGATIVES)] = None,
    absolute_margin: Annotated[
        float | None, typer.Option(help="Stay so far below the positive.", rich_help_panel=NEGATIVES)
    ] = None,
    relative_margin: Annotated[
        float | None, typer.Option(help="Likewise, as a share of its score.", rich_help_panel=NEGATIVES)
    ] = None,
    sampling: Annotated[
        str, typer.Option(help="top or random ones of what is left.", rich_help_panel=NEGATIVES)
    ] = "top",
    seed: Annotated[int, typer.Option(help="Of random ones.", rich_help_panel=NEGATIVES)] = 0,
    bits: Annotated[int, typer.Option(help="Length of the codes.", rich_help_panel=SEARCH)] = 512,
    rescore: Annotated[
        bool, typer.Option(help="Score a shortlist with floats; else bits alone.", rich_help_panel=SEARCH)
    ] = True,
    oversampling: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Length of that shortlist, in candidates.",
            show_default="4, at least 64",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="QUERY,POSITIVE", help="Columns of INPUT.", show_default="by name", rich_help_panel=TEXTS),
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option(
            "--no-header", help="INPUT (.csv, .tsv) begins with a pair; columns are 1, 2, ...", rich_help_panel=TEXTS
        ),
    ] = False,
    split: Annotated[
        str | None, typer.Option(help="Of a data set.", show_default="train", rich_help_panel=TEXTS)
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="Further texts: .txt, or a table.", rich_help_panel=TEXTS)] = None,
    corpus_column: Annotated[
        str | None, typer.Option(help="Their column.", show_default="by name", rich_help_panel=TEXTS)
    ] = None,
    no_corpus_header: Annotated[
        bool, typer.Option("--no-corpus-header", help="As --no-header, of the corpus.", rich_help_panel=TEXTS)
    ] = False,
    cross_encoder: Annotated[
        str | None, typer.Option(help="Filter by the scores of this model.", rich_help_panel=NEGATIVES)
    ] = None,
    query_prompt: Annotated[str | None, typer.Option(help="Stands before queries.", rich_help_panel=TEXTS)] = None,
    query_prompt_name: Annotated[
        str | None, typer.Option(help="Or a prompt of the model's.", rich_help_panel=TEXTS)
    ] = None,
    corpus_prompt: Annotated[
        str | None, typer.Option(help="Stands before the texts searched.", rich_help_panel=TEXTS)
    ] = None,
    corpus_prompt_name: Annotated[
        str | None, typer.Option(help="Or a prompt of the model's.", rich_help_panel=TEXTS)
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at a time.", rich_help_panel=TEXTS)] = 32,
    device: Device = None,
    cache_folder: Annotated[
        Path | None,
        typer.Option(
            help="Keep what is encoded.", show_default="OUTPUT.cache, until it is written", rich_help_panel=TEXTS
        ),
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            help="Instead of INPUT: a file of embeddings, larger than memory if .npy.", rich_help_panel=EMBEDDINGS
        ),
    ] = None,
    corpus_embeddings: Annotated[
        str | None, typer.Option(help="Search these; by default themselves.", rich_help_panel=EMBEDDINGS)
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Of embeddings: .npy or one per line.", rich_help_panel=EMBEDDINGS)
    ] = None,
    positives: Annotated[
        Path | None, typer.Option(help="Of embeddings: rows that are positives, .npy.", rich_help_panel=EMBEDDINGS)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Find hard negatives of pairs of texts with a model, or of embeddings; rows to train on, and a summary."""
    if embeddings is None:
        of_embeddings = {"--corpus-embeddings": corpus_embeddings, "--labels": labels, "--positives": positives}
        _refuse_ignored("--embeddings", of_embeddings)
        _refuse_ignored("--corpus", {} if corpus else {"--corpus-column": corpus_column})
    else:
        of_texts = {
            "--model": model,
            "--columns": columns,
            "--no-header": no_header or None,
            "--split": split,
            "--corpus": corpus,
            "--corpus-column": corpus_column,
            "--no-corpus-header": no_corpus_header or None,
            "--cross-encoder": cross_encoder,
            "--query-prompt": query_prompt,
            "--query-prompt-name": query_prompt_name,
            "--corpus-prompt": corpus_prompt,
            "--corpus-prompt-name": corpus_prompt_name,
            "--cache-folder": cache_folder,
            "--scores": scores or None,
            "--format": None if output_format == "triplet" else output_format,
        }
        _refuse_ignored("INPUT", of_texts)
    if output is None:
        raise ValueError("mining needs --output: the file to write.")
    if (source is None) == (embeddings is None):
        raise ValueError("give either INPUT, pairs of texts, or --embeddings.")
    if embeddings is None and model is None:
        raise ValueError("mining from texts needs --model: a folder or name that SentenceTransformer loads.")
    what = embeddings if source is None else f"{source} with {model}"
    typer.echo(f"Mining hard negatives for {what} -> {output}")  # before imports that take seconds
    from lookalike.mining.command import TextSource, VectorSource, run_text_mining, run_vector_mining
    from lookalike.mining.options import Options

    options = Options(
        num_negatives=num_negatives,
        range_min=range_min,
        range_max=range_max,
        max_score=max_score,
        min_score=min_score,
        absolute_margin=absolute_margin,
        relative_margin=relative_margin,
        sampling_strategy=sampling,
        bits=bits,
        rescore=(oversampling or True) if rescore else False,
    )
    if source is not None and model is not None:
        texts = TextSource(
            source=source,
            model=model,
            columns=columns,
            header=not no_header,
            split=split,
            corpus=corpus,
            corpus_column=corpus_column,
            corpus_header=not no_corpus_header,
            cross_encoder=cross_encoder,
            query_prompt=query_prompt,
            query_prompt_name=query_prompt_name,
            corpus_prompt=corpus_prompt,
            corpus_prompt_name=corpus_prompt_name,
            batch_size=batch_size,
            device=device,
            cache_folder=cache_folder,
        )
        run_text_mining(texts, options, output, output_format, scores=scores, seed=seed, force=force)
    elif embeddings is not None:
        vectors = VectorSource(
            embeddings=embeddings, corpus=corpus_embeddings, labels=labels, positives=positives, device=device
        )
        run_vector_mining(vectors, options, output, seed=seed, force=force)


def _refuse_ignored(owner: str, options: Mapping[str, object]) -> None:
    """Options that would be ignored because what they belong to was not given."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} belongs to {owner}, which was not given.")


def main(args: list[str]) -> None:
    """Run the old command."""
    import lookalike.cli.train  # noqa: F401 - a single command would lose its name
    from lookalike.cli.app import bridge

    bridge(["mine", *args])
